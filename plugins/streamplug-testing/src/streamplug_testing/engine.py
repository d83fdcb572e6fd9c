"""Conformance tests of engines, for plugin authors to subclass."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from streamplug_files import PLAN_NAME
from streamplug_tools.partitioned import write_parts

from streamplug.errors import ConfigError, WriterError
from streamplug.interfaces import Engine
from streamplug.plugin import open_storage, resolve
from streamplug.write import Writer
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same

_PATIENCE = 60.0
"""Timeout in seconds for one call to wait for another, or for the test."""


class EngineTests(ConformanceBase):
    """Conformance tests of an engine whose workers see the file system of this machine.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        mortal: Whether tasks run in processes that may be killed; else those tests are skipped.
        deaths: Worker deaths that a task survives.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[Engine] | None] = None
    mortal: ClassVar[bool] = True
    deaths: ClassVar[int] = 1

    def make(self) -> Engine:
        """Return a new instance, as from the bare name; override it if more arguments are required."""
        cls = self.cls if self.cls is not None else resolve("engine", self.name)
        made: Engine = cls.from_spec(None)
        return made

    def afar(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return an empty location in an object store that workers reach, and its storage options.

        None (the default) skips the tests that need one.
        """
        return None

    def test_refuses_an_argument_with_an_error_of_ours_or_takes_it(self) -> None:
        cls = self.cls if self.cls is not None else resolve("engine", self.name)
        try:
            made = cls.from_spec("nonsense")
        except ConfigError:
            return
        assert isinstance(made, Engine)

    def test_calls_each_number_and_says_so(self, tmp_path: Path) -> None:
        numbers = [7, 0, 3, 12, 5]
        assert sorted(self.make().run(_marking(tmp_path), numbers)) == sorted(numbers)
        assert {int(path.name) for path in tmp_path.iterdir()} == set(numbers)

    def test_nothing_to_do_is_done(self, tmp_path: Path) -> None:
        assert list(self.make().run(_marking(tmp_path), [])) == []

    def test_can_be_used_again(self, tmp_path: Path) -> None:
        engine = self.make()
        for number in (1, 2):
            assert list(engine.run(_marking(tmp_path), [number])) == [number]

    @pytest.mark.parametrize("error", [RuntimeError("nothing there"), WriterError("part 1: bad")])
    def test_what_a_call_raises_comes_back_as_an_error_of_ours(self, error: Exception) -> None:
        def task(number: int) -> None:
            if number == 1:
                raise error

        expected = "part 1: RuntimeError: nothing there|part 1: bad"
        with pytest.raises(WriterError, match=f"^({expected})$"):
            list(self.make().run(task, [0, 1, 2]))

    def test_what_fails_is_not_called_again(self, tmp_path: Path) -> None:
        def task(number: int) -> None:
            (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
            raise RuntimeError("as always")

        with pytest.raises(WriterError, match="as always"):
            list(self.make().run(task, [4]))
        assert len(list(tmp_path.iterdir())) == 1

    def test_what_cannot_travel_is_refused(self) -> None:
        lock = threading.Lock()

        def task(number: int) -> None:
            lock.acquire(timeout=number)

        with pytest.raises(ConfigError):
            list(self.make().run(task, [0]))

    def test_leaving_gives_up_what_has_not_begun(self, tmp_path: Path) -> None:
        def task(number: int) -> None:
            (tmp_path / str(number)).touch()
            end = time.monotonic() + _PATIENCE
            while number and not (tmp_path / "end").exists() and time.monotonic() < end:
                time.sleep(0.01)

        calls = self.make().run(task, range(1000))
        try:
            assert next(calls) == 0
        finally:
            calls.close()  # type: ignore[attr-defined]  # engines write generators
            (tmp_path / "end").touch()
        assert len(list(tmp_path.iterdir())) < 1000

    def test_parts_have_the_bytes_that_they_have_here(self, tmp_path: Path) -> None:
        write = _writing(tmp_path)
        assert same(write(self.make(), _samples), write("local:0", _samples))

    def test_a_data_set_is_converted_to_the_bytes_that_it_has_here(self, tmp_path: Path) -> None:
        tools = pytest.importorskip("streamplug_tools")
        _writing(tmp_path)("local:0", _samples)
        results = []
        engines: list[Engine | str] = [self.make(), "local:0"]
        for number, engine in enumerate(engines):
            out = tmp_path / f"out{number}"
            columns = tools.Columns(encodings={"n": "int16"})
            output = tools.Output(
                out, format="mds", compression="gz", size_limit=200, engine=engine
            )
            assert tools.convert(tmp_path / "set-local:0", output, columns=columns).samples == 400
            results.append(_files(out))
        assert same(results[0], results[1])

    def test_a_worker_that_dies_is_replaced(self, tmp_path: Path) -> None:
        if not self.mortal:
            pytest.skip("it calls in this process")
        marks, deaths = tmp_path / "marks", self.deaths
        marks.mkdir()

        def deadly(part: int) -> Any:
            yield from _samples(part)
            died = len(list(marks.glob(f"{part}-*")))
            if part == 1 and died < deaths:
                (marks / f"{part}-{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)

        write = _writing(tmp_path)
        assert same(write(self.make(), deadly), write("local:0", _samples))
        assert len(list(marks.iterdir())) == deaths

    def test_a_worker_that_dies_leaves_nothing_in_an_object_store(self) -> None:
        if not self.mortal or (place := self.afar()) is None:
            pytest.skip("it calls in this process, or there is no object store")
        url, options = place

        def deadly(part: int) -> Any:
            yield from _samples(part)
            storage = open_storage(f"{url}/there", options)
            if part == 1 and not storage.exists("died"):
                end = time.monotonic() + _PATIENCE
                while not list(storage.list("part-00001/")) and time.monotonic() < end:
                    time.sleep(0.05)  # until the part has written files
                storage.write("died", b"")
                os.kill(os.getpid(), signal.SIGKILL)

        results = []
        engines: list[tuple[str, Engine | str, Any]] = [
            ("there", self.make(), deadly),
            ("here", "local:0", _samples),
        ]
        for name, engine, make in engines:
            write_parts(
                make,
                range(4),
                columns={"n": "int"},
                out=f"{url}/{name}",
                engine=engine,
                size_limit=400,
                storage_options=options,
            )
            results.append(_objects(f"{url}/{name}", options))
        assert results[0].pop("died") == b""
        assert same(results[0], results[1])

    def test_a_conversion_in_an_object_store_survives_a_worker(self, tmp_path: Path) -> None:
        if not self.mortal or (place := self.afar()) is None:
            pytest.skip("it calls in this process, or there is no object store")
        tools = pytest.importorskip("streamplug_tools")
        url, options = place
        with Writer(columns={"n": "int"}, out=tmp_path / "set", size_limit=400) as writer:
            for n in range(1000):
                writer.write({"n": n})
        mark = f"__import__('pathlib').Path({str(tmp_path / 'died')!r})"
        deadly = f"{mark}.exists() or {mark}.touch() or __import__('os').kill(__import__('os').getpid(), 9)"
        results = []
        engines: list[tuple[Engine | str, str]] = [
            (self.make(), f"n + (n == 450 and ({deadly}) and 0)"),
            ("local:0", "n + 0"),
        ]
        for number, (engine, value) in enumerate(engines):
            output = tools.Output(
                f"{url}/{number}", size_limit=200, engine=engine, storage_options=options
            )
            assert tools.process(tmp_path / "set", output, {"n": value}).samples == 1000
            results.append(_objects(f"{url}/{number}", options))
        assert (tmp_path / "died").exists()
        assert same(results[0], results[1])

    def test_what_kills_every_worker_is_given_up(self) -> None:
        if not self.mortal:
            pytest.skip("it calls in this process")

        def task(number: int) -> None:
            if number == 5:
                os.kill(os.getpid(), signal.SIGKILL)

        with pytest.raises(WriterError, match="part 5: "):
            list(self.make().run(task, [5]))


def _make_samples() -> Callable[[int], Any]:
    # A local function is pickled by value: so workers do not import this module, pytest and hypothesis.
    def samples(part: int) -> Any:
        for n in range(100 * part, 100 * part + 100):
            yield {"n": n}

    return samples


_samples = _make_samples()


def _marking(folder: Path) -> Callable[[int], None]:
    return lambda number: (folder / str(number)).touch()


def _writing(folder: Path) -> Callable[[Engine | str, Any], dict[str, bytes]]:
    """Return a function that writes a data set with an engine and returns its files."""

    def write(engine: Engine | str, make: Any) -> dict[str, bytes]:
        out = folder / f"set-{engine if isinstance(engine, str) else 'theirs'}"
        columns = {"n": "int"}
        shards = write_parts(
            make, range(4), columns=columns, out=out, engine=engine, size_limit=400, hashes=["sha1"]
        )
        assert len(json.loads((out / "index.json").read_bytes())["shards"]) == shards > 4
        return _files(out)

    return write


def _objects(url: str, options: Mapping[str, Any]) -> dict[str, bytes]:
    with closing(open_storage(url, options)) as storage:
        keys = [info.key for info in storage.list("")]
        # The plan names the function, which differs.
        return {key: storage.read(key) for key in keys if key != PLAN_NAME}


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != PLAN_NAME)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
