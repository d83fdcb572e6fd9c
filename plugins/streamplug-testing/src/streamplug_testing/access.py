"""Conformance tests of accesses, for plugin authors to subclass."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StreamplugError
from streamplug.plugin import register, resolve, unregister
from streamplug.source import Access
from streamplug.stream import Stream
from streamplug.transfer import map_threads
from streamplug.write import MDSWriter
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same
from streamplug_testing.processes import other_process

_REGISTERED_NAME = "conformance-tests"
_SIZE = 120
_SOME_ROWS = [3, 2, 70, 118, 3, 41]


class AccessTests(ConformanceBase):
    """Conformance tests of an access; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        options: Further options of each stream.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[Access] | None] = None
    options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        if self.cls is None:
            yield
            return
        register("access", _REGISTERED_NAME, self.cls, replace=True)
        yield
        unregister("access", _REGISTERED_NAME)

    @classmethod
    def access_class(cls) -> type[Access]:
        """Return the class under test."""
        return cls.cls or resolve("access", cls.name)

    @pytest.fixture(params=["in place", "cached"])
    def stream(self, request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
        """Return a stream of new shards, with this access."""
        columns = {"n": "int", "text": "str", "values": "ndarray:uint16"}
        with MDSWriter(out=tmp_path / "set", columns=columns, size_limit=2000) as out:
            for n in range(_SIZE):
                values = np.arange(n % 40, dtype=np.uint16)
                out.write({"n": n, "text": f"text {n}", "values": values})
        local = str(tmp_path / "cache") if request.param == "cached" else None
        return Stream(
            remote=str(tmp_path / "set"),
            local=local,
            access=_REGISTERED_NAME if self.cls is not None else self.name,
            **self.options,
        )

    def test_refuses_an_argument_or_takes_it(self) -> None:
        try:
            made = self.access_class().from_spec("nonsense")
        except ConfigError:
            return
        assert isinstance(made, Access)

    def test_reads_what_whole_shards_have(self, stream: Stream) -> None:
        dataset, expected = _open(stream), _whole(stream)
        assert same([dict(row) for row in dataset], expected)
        assert same([dict(dataset[n]) for n in _SOME_ROWS], [expected[n] for n in _SOME_ROWS])
        assert same([dict(row) for row in dataset[_SOME_ROWS]], [expected[n] for n in _SOME_ROWS])
        batches = _open(stream, batch_size=8, shuffle=True).batches()
        assert sorted(n for batch in batches for n in batch["n"]) == list(range(_SIZE))

    def test_reads_selected_rows(self, stream: Stream) -> None:
        rows, expected = list(range(1, _SIZE, 50)), _whole(stream)
        dataset = _open(stream.with_defaults(select=rows))
        assert same([dict(row) for row in dataset], [expected[n] for n in rows])

    def test_reads_some_columns(self, stream: Stream) -> None:
        rows = [dict(row) for row in _open(stream, columns=["n"])[_SOME_ROWS]]
        assert rows == [{"n": n} for n in _SOME_ROWS]

    def test_streams_of_several_accesses_are_read_together(self, stream: Stream) -> None:
        whole = Stream(remote=stream.remote)
        dataset = StreamingDataset(streams=[whole, stream, stream])
        expected = _whole(stream)
        assert same([dict(row) for row in dataset], 3 * expected)
        ids = [5, _SIZE + 5, 2 * _SIZE + 5, _SIZE - 1]
        assert same([dict(row) for row in dataset[ids]], [expected[n % _SIZE] for n in ids])

    def test_threads_read_at_the_same_time(self, stream: Stream) -> None:
        dataset = _open(stream)
        numbers = np.random.default_rng(0).permutation(_SIZE).tolist()
        assert list(map_threads(lambda n: dataset[n]["n"], numbers, 8)) == numbers

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_other_processes_read(self, stream: Stream, method: str) -> None:
        dataset = _open(stream)
        assert dataset[0]["n"] == 0  # something is open
        if method == "spawn" and self.cls is not None:
            dataset = pickle.loads(pickle.dumps(dataset))  # it may not know the class
            assert [row["n"] for row in dataset[_SOME_ROWS]] == _SOME_ROWS
            return
        with other_process(method) as pool:
            assert pool.apply(_read_numbers, (dataset,)) == _SOME_ROWS

    @pytest.mark.parametrize("is_missing", [True, False])
    def test_a_missing_or_damaged_shard_is_named(self, stream: Stream, is_missing: bool) -> None:
        assert isinstance(stream.remote, str)
        path = Path(stream.remote) / "shard.00001.mds"
        first = int(StreamingDataset(remote=stream.remote).samples_per_shard[0])
        if is_missing:
            path.unlink()
        else:
            path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
        with pytest.raises(StreamplugError, match=r"shard\.00001\.mds"):
            _open(stream)[first]


def _open(stream: Stream, **options: Any) -> StreamingDataset:
    return StreamingDataset(streams=[stream], **options)


def _whole(stream: Stream) -> list[dict[str, Any]]:
    return [dict(row) for row in StreamingDataset(remote=stream.remote)]


def _read_numbers(dataset: StreamingDataset) -> list[int]:
    return [int(row["n"]) for row in dataset[_SOME_ROWS]]
