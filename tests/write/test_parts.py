from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from streamplug import StreamingDataset, write_parts
from streamplug.errors import ConfigError, OutputExistsError, WriterError

COLUMNS = {"id": "int", "text": "str"}
OPTIONS = {"columns": COLUMNS, "size_limit": 2000, "compression": "gz", "hashes": ["sha1"]}
SIZE = 100


def samples(part):
    for n in range(part * SIZE, (part + 1) * SIZE):
        yield {"id": n, "text": "x" * (n % 7)}


def halves(part):
    some = list(samples(part))
    for half in (some[:40], some[40:]):
        yield {name: [sample[name] for sample in half] for name in COLUMNS}


def broken(part):
    yield from samples(part)
    raise RuntimeError("nothing more to read")


def deadly(part):
    marks = Path(os.environ["STREAMPLUG_MARKS"])
    yield from samples(part)
    died = len(list(marks.glob(f"{part}-*")))
    if died < int(os.environ["STREAMPLUG_DEATHS"]):
        (marks / f"{part}-{died}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "set"
    write_parts(samples, range(5), out=folder, processes=0, **OPTIONS)
    return content(folder)


def ids(remote, **options):
    dataset = StreamingDataset(remote=str(remote), batch_size=1, **options)
    return [sample["id"] for sample in dataset]


def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path, undisturbed):
    reports = []
    shards = write_parts(
        samples,
        range(5),
        out=tmp_path / "set",
        processes=3,
        report=lambda *count: reports.append(count),
        **OPTIONS,
    )
    assert content(tmp_path / "set") == undisturbed
    assert reports == [(done, 5) for done in range(6)]
    assert shards == len(json.loads(undisturbed["index.json"])["shards"]) > 5
    assert ids(tmp_path / "set", local=str(tmp_path / "cache")) == list(range(5 * SIZE))


def test_whole_data_set_is_left_as_it_is(tmp_path, undisturbed):
    for _ in range(2):
        write_parts(samples, range(5), out=tmp_path / "set", processes=0, **OPTIONS)
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").glob("part-*/*")}
    write_parts(broken, range(5), out=tmp_path / "set", processes=0, **OPTIONS)  # asks for nothing
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert content(tmp_path / "set") == undisturbed


def test_other_data_is_not_mixed_in(tmp_path, undisturbed):
    write_parts(samples, range(5), out=tmp_path / "set", processes=0, **OPTIONS)
    with pytest.raises(OutputExistsError, match="parts was 5, not 4"):
        write_parts(samples, range(4), out=tmp_path / "set", processes=0, **OPTIONS)
    with pytest.raises(OutputExistsError, match="columns was"):
        write_parts(samples, range(5), out=tmp_path / "set", columns={"id": "int"}, processes=0)
    options = {**OPTIONS, "size_limit": 1500}
    with pytest.raises(OutputExistsError, match="size_limit was 2000, not 1500"):
        write_parts(samples, range(5), out=tmp_path / "set", processes=0, **options)
    write_parts(samples, range(2), out=tmp_path / "set", processes=0, exist_ok=True, **OPTIONS)
    assert list((tmp_path / "set").glob("part-00002/*")) == []
    assert ids(tmp_path / "set", local=str(tmp_path / "cache")) == list(range(2 * SIZE))


@pytest.mark.parametrize("keep_local", [True, False])
def test_parts_go_straight_to_a_storage(tmp_path, undisturbed, keep_local):
    far = f"memory://{tmp_path.name}-{keep_local}"
    near = tmp_path / "near"
    options = {**OPTIONS, "keep_local": keep_local, "processes": 0}
    write_parts(samples, range(5), out=(near, far), **options)
    assert ids(far, local=str(tmp_path / "cache")) == list(range(5 * SIZE))
    kept = content(near)
    assert (kept == {k: v for k, v in undisturbed.items() if k != "parts.json"}) is keep_local
    write_parts(broken, range(5), out=far, **{**options, "keep_local": False})  # all is there


@pytest.mark.parametrize("processes", [0, 2])
def test_error_names_the_part(tmp_path, processes):
    with pytest.raises(WriterError, match=r"part \d \(\d\): RuntimeError: nothing more to read"):
        write_parts(broken, range(3), out=tmp_path / "set", processes=processes, **OPTIONS)
    assert not (tmp_path / "set" / "index.json").exists()
    assert write_parts(samples, range(3), out=tmp_path / "set", processes=0, **OPTIONS)


def test_bad_arguments_are_refused(tmp_path):
    out = tmp_path / "set"
    with pytest.raises(ConfigError, match="parts= is empty"):
        write_parts(samples, [], out=out, **OPTIONS)
    with pytest.raises(ConfigError, match="processes=-1"):
        write_parts(samples, [1], out=out, processes=-1, **OPTIONS)
    with pytest.raises(ConfigError, match="name parts by paths"):
        write_parts(samples, [object()], out=out, **OPTIONS)
    with pytest.raises(ConfigError, match="processes=0"):
        write_parts(lambda _: [], [1], out=out, processes=1, **OPTIONS)


@pytest.mark.parametrize(("deaths", "works"), [(2, True), (3, False)])
def test_process_that_dies_is_replaced(tmp_path, monkeypatch, undisturbed, deaths, works):
    monkeypatch.setenv("STREAMPLUG_MARKS", str(tmp_path))
    monkeypatch.setenv("STREAMPLUG_DEATHS", str(deaths))
    if works:
        write_parts(deadly, range(5), out=tmp_path / "set", processes=2, **OPTIONS)
        assert content(tmp_path / "set") == undisturbed
    else:
        with pytest.raises(WriterError, match=r"part 0: 3 processes have died over it, .* code -9"):
            write_parts(deadly, [0], out=tmp_path / "set", processes=1, **OPTIONS)


def test_batches_give_the_bytes_of_samples(tmp_path, undisturbed):
    write_parts(halves, range(5), out=tmp_path / "set", processes=0, batches=True, **OPTIONS)
    assert content(tmp_path / "set") == undisturbed


PROGRAM = """
    import sys, time
    from streamplug import write_parts

    def samples(part):
        for n in range(part * 100, (part + 1) * 100):
            time.sleep(0.001)
            yield {"id": n, "text": "x" * (n % 7)}

    if __name__ == "__main__":
        columns = {"id": "int", "text": "str"}
        write_parts(samples, range(5), columns=columns, out=sys.argv[1], processes=2, size_limit=2000,
            compression="gz", hashes=["sha1"])
"""
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))


def test_killed_runs_go_on_and_end_with_the_same_bytes(tmp_path, undisturbed):
    program, rng = tmp_path / "program.py", random.Random(3)
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(program)]
    for kill in range(50 if SOAK else 2):
        out = tmp_path / "set" / str(kill)
        process = subprocess.Popen([*command, str(out)], start_new_session=True)
        deadline = time.monotonic() + 60
        while not (out / "part-00000").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        subprocess.run([*command, str(out)], check=True, timeout=120)
        assert content(out) == undisturbed


WAITING = """
    import sys, time
    from pathlib import Path
    from streamplug import write_parts

    def samples(part):
        (Path(sys.argv[1]) / "began").touch()
        time.sleep(600)
        yield {"id": part}

    if __name__ == "__main__":
        write_parts(samples, range(2), columns={"id": "int"}, out=sys.argv[1], processes=1)
"""


def test_processes_end_with_the_one_that_started_them(tmp_path):
    program, out = tmp_path / "program.py", tmp_path / "set"
    program.write_text(textwrap.dedent(WAITING))
    with subprocess.Popen(
        [sys.executable, str(program), str(out)], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 60
        while not (out / "began").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        assert process.stdout.read() == b""  # which its children have open, too
