from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from streamplug_tools.local_engine import Local
from streamplug_tools.part_identity import make_plan
from streamplug_tools.part_task import PartTask, install_attempt

import streamplug
from streamplug import Encoding, Engine, MDSWriter, register_encoding, write_parts
from streamplug.builtin.mds import MDS
from streamplug.errors import ConfigError, OutputExistsError, PluginError, WriterError
from streamplug.plugin import open_storage

# The processes that are started import this module, and need no torch: so `streamplug.StreamingDataset`.

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


class Known:
    """Samples with a declared identity."""

    def __init__(self, make, identity="v1"):
        self.make, self.identity = make, identity

    def __call__(self, part):
        return self.make(part)


def broken(part):
    yield from samples(part)
    raise RuntimeError("nothing more to read")


def deadly(part):
    marks = Path(os.environ["STREAMPLUG_MARKS"])
    yield from samples(part)
    died = len(list(marks.glob(f"{part}-*")))
    if part == 3 and died < int(os.environ["STREAMPLUG_DEATHS"]):
        (marks / f"{part}-{died}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def content(folder):
    """Return the files of a data set, without that which identifies the function."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name != "parts.json"
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "set"
    write_parts(samples, range(5), out=folder, processes=0, **OPTIONS)
    return content(folder)


def ids(remote, **options):
    dataset = streamplug.StreamingDataset(remote=str(remote), batch_size=1, **options)
    return [sample["id"] for sample in dataset]


def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path, undisturbed):
    reports = []
    shards = write_parts(
        samples,
        range(5),
        out=tmp_path / "set",
        processes=2,
        on_progress=lambda *count: reports.append(count),
        **OPTIONS,
    )
    assert content(tmp_path / "set") == undisturbed
    assert reports == [(done, 5) for done in range(6)]
    assert shards == len(json.loads(undisturbed["index.json"])["shards"]) > 5
    assert ids(tmp_path / "set", local=str(tmp_path / "cache")) == list(range(5 * SIZE))


def halting(part, seen):
    """Halt until the path `seen` exists."""
    yield from halves(part)
    deadline = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield {"id": [part], "text": [""]}


@pytest.mark.parametrize("processes", [0, 2])
def test_samples_and_bytes_are_counted_while_parts_are_written(tmp_path, processes):
    seen, mark = [], tmp_path / "mark"
    options = {**OPTIONS, "batched": True, "processes": processes, "out": tmp_path / "set"}

    def note(counts):
        seen.append(counts)
        if SIZE in counts[:, 0]:
            mark.touch()

    write_parts(partial(halting, seen=mark), range(2), on_counts=note, **options)
    assert any(SIZE in counts[:, 0] for counts in seen)  # a part that is not finished
    assert seen[-1][:, 0].tolist() == [SIZE + 1, SIZE + 1]
    index = json.loads((tmp_path / "set" / "index.json").read_text())
    raw = sum(shard["raw_data"]["bytes"] for shard in index["shards"])
    assert seen[-1][:, 1].sum() == raw


def test_parts_of_an_earlier_run_have_no_counts(tmp_path):
    options = {**OPTIONS, "processes": 0, "out": tmp_path / "set"}
    with pytest.raises(WriterError):
        write_parts(
            Known(lambda part: broken(part) if part else samples(part)), range(2), **options
        )
    seen = []
    write_parts(Known(samples), range(2), on_counts=seen.append, **options)
    assert seen[-1][0].tolist() == [-1, -1]
    assert seen[-1][1, 0] == SIZE


def test_whole_data_set_is_left_as_it_is(tmp_path, undisturbed):
    write_parts(samples, range(5), out=tmp_path / "set", processes=0, **OPTIONS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").glob("part-*/*")}
    for make in (samples, broken):
        with pytest.raises(OutputExistsError, match=r"exist_ok=True \(--exist-ok\) to "):
            write_parts(make, range(5), out=tmp_path / "set", processes=0, **OPTIONS)
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
    options = {**OPTIONS, "max_samples_per_shard": 3}
    with pytest.raises(OutputExistsError, match="max_samples_per_shard was None, not 3"):
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
    assert (kept == undisturbed) is keep_local
    with pytest.raises(
        OutputExistsError, match="already holds the finished data set of the same call"
    ):
        write_parts(samples, range(5), out=far, **{**options, "keep_local": False})


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
    for parts in ("ab", b"ab", {"a": 1}, {1, 2}, iter([1]), 5):
        with pytest.raises(ConfigError, match="parts= takes a list, got"):
            write_parts(samples, parts, out=out, **OPTIONS)
    for name in ("exist_ok", "batched"):
        with pytest.raises(ConfigError, match=f"{name}='no': must be True or False"):
            write_parts(samples, [1], out=out, **OPTIONS, **{name: "no"})
    with pytest.raises(ConfigError, match="processes=-1"):
        write_parts(samples, [1], out=out, processes=-1, **OPTIONS)
    with pytest.raises(ConfigError, match="name parts by paths"):
        write_parts(samples, [object()], out=out, **OPTIONS)
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"open files, locks .* pass processes=0"):
        write_parts(lambda _: [lock], [1], out=out, processes=1, **OPTIONS)
    with pytest.raises(ConfigError, match="engine local:many: give the number"):
        write_parts(samples, [1], out=out, engine="local:many", **OPTIONS)
    with pytest.raises(ConfigError, match="processes=2 is for the engine 'local'"):
        write_parts(samples, [1], out=out, engine="local:2", processes=2, **OPTIONS)
    with pytest.raises(ConfigError, match="expected the name of an engine, or an engine"):
        write_parts(samples, [1], out=out, engine=4, **OPTIONS)
    with pytest.raises(ConfigError, match="the first of the pair must be a path"):
        write_parts(samples, [1], out=("s3://bucket/a", str(out)), **OPTIONS)


def test_functions_of_scripts_travel(tmp_path, undisturbed):
    size = SIZE

    def make(part):
        for n in range(part * size, (part + 1) * size):
            yield {"id": n, "text": "x" * (n % 7)}

    write_parts(make, range(5), out=tmp_path / "set", engine="local:2", **OPTIONS)
    assert content(tmp_path / "set") == undisturbed


def test_names_that_were_registered_are_known_to_the_workers(tmp_path):
    class Reversed(Encoding):
        def encode(self, value):
            return value[::-1].encode()

        def decode(self, data):
            return bytes(data).decode()[::-1]

    register_encoding("reversed-in-parts", Reversed)
    columns = {"text": "reversed-in-parts"}
    write_parts(
        lambda part: [{"text": f"part {part}"}],
        range(2),
        columns=columns,
        out=tmp_path / "set",
        processes=1,
    )
    dataset = streamplug.StreamingDataset(local=str(tmp_path / "set"))
    assert [dataset[0], dataset[1]] == [{"text": "part 0"}, {"text": "part 1"}]


def test_a_relative_place_is_that_of_who_asks(tmp_path, monkeypatch, undisturbed):
    monkeypatch.chdir(tmp_path)
    write_parts(samples, range(5), out="set", engine=Elsewhere(tmp_path), **OPTIONS)
    assert content(tmp_path / "set") == undisturbed


def test_workers_that_see_another_place_refuse_before_they_read(tmp_path):
    message = (
        r"part 0 \(0\): ConfigError: \S+ finds no parts.json of this data set in memory://.* shared"
    )
    with pytest.raises(WriterError, match=message):
        write_parts(broken, range(3), out=f"memory://{tmp_path.name}", processes=1, **OPTIONS)


def test_workers_of_an_earlier_job_do_not_spoil_another(tmp_path, undisturbed):
    out = tmp_path / "set"

    def replaced(part):
        yield from samples(part)
        write_parts(samples, range(5), out=out, processes=0, exist_ok=True, **OPTIONS)

    with pytest.raises(WriterError, match="end an earlier job"):
        write_parts(replaced, [0], out=out, processes=0, **OPTIONS)
    assert content(out) == undisturbed


@pytest.mark.parametrize("place", ["path", "url", "both"])
@pytest.mark.parametrize("later", ["ends", "fails"])
def test_an_attempt_that_comes_too_late_changes_nothing(tmp_path, undisturbed, place, later):
    far, near = f"memory://{tmp_path.name}-late", tmp_path / "set"
    out = {"path": near, "url": far, "both": (near, far)}[place]
    told = []

    def twice(part):
        """Has another attempt of the part write all of it while this one is half way."""
        for sample in samples(part):
            if sample["id"] % SIZE == SIZE // 2 and part not in told:
                told.append(part)
                Twice.task(part)
                if later == "fails":
                    raise RuntimeError("lost")
            yield sample

    options = {**OPTIONS, "keep_local": True} if place == "both" else OPTIONS
    write_parts(twice, range(5), out=out, engine=Twice(), **options)
    assert told == list(range(5))
    assert ids(out if place == "path" else far, local=str(tmp_path / "cache")) == list(range(500))
    if place != "url":
        assert content(near) == undisturbed


def test_of_attempts_that_differ_one_is_the_part(tmp_path):
    """A local part is one attempt's from first to last byte, however many end at the same time."""
    attempts, meet = itertools.count(), threading.Barrier(6)

    def differing(part):
        attempt = next(attempts)
        for n in range(200 + attempt):
            yield {"id": attempt, "text": "x" * n}
        if not part:
            meet.wait(60)

    class Racing(Engine):
        def run(self, task, numbers):
            with ThreadPoolExecutor(6) as pool:
                for _ in pool.map(task, [0] * 6):
                    pass
            return Local(0).run(task, numbers)

    write_parts(differing, range(3), out=tmp_path / "set", engine=Racing(), **OPTIONS)
    found = ids(tmp_path / "set", local=str(tmp_path / "cache"), validate_hash="sha1")
    counts = [len(list(group)) for _, group in itertools.groupby(found)]
    assert counts[0] == 200 + found[0]
    assert counts[1:] == [206, 207]
    assert not (tmp_path / "set" / ".attempts").exists()
    named = {e["zip_data"]["basename"] for e in index_of(tmp_path / "set")["shards"]}
    shards = {str(path.relative_to(tmp_path / "set")) for path in tmp_path.glob("set/*/shard*")}
    assert shards == named


def test_attempts_that_end_at_the_same_moment_replace_each_other_whole(tmp_path):
    meet = threading.Barrier(8)

    def attempt(run, number):
        scratch = run / "attempts" / str(number)
        scratch.mkdir(parents=True)
        for name in ("index.json", "shard.00000.mds"):
            (scratch / name).write_text(str(number))
        meet.wait(60)
        install_attempt(scratch, run / "part-00000")

    with ThreadPoolExecutor(8) as pool:
        for run in (tmp_path / str(n) for n in range(50)):
            list(pool.map(attempt, [run] * 8, range(8)))
            assert len({path.read_text() for path in run.glob("part-00000/*")}) == 1
            assert list(run.glob("attempts/*")) == []


def index_of(folder):
    return json.loads((folder / "index.json").read_bytes())


@pytest.mark.parametrize("keep_local", [True, False])
def test_files_of_others_in_the_local_place_stay(tmp_path, keep_local):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}-{keep_local}"
    (near / "part-00000").mkdir(parents=True)
    (near / "part-00000" / "index.json").write_text("precious")
    before = content(near)
    options = {**OPTIONS, "keep_local": keep_local, "processes": 0}
    if keep_local:
        with pytest.raises(
            OutputExistsError, match=r"near holds other files, such as 'part-00000/"
        ):
            write_parts(samples, range(2), out=(near, far), **options)
    else:  # nothing is left there
        write_parts(samples, range(2), out=(near, far), **options)
    assert content(near) == before


def test_the_local_place_of_another_run_is_not_taken(tmp_path):
    near, far, other = tmp_path / "near", tmp_path / "far", tmp_path / "other"
    options = {**OPTIONS, "keep_local": True, "processes": 0}
    write_parts(samples, range(2), out=near, processes=0, **OPTIONS)
    write_parts(samples, range(2, 4), out=(other, f"file://{far}"), **options)
    before = content(near)
    with pytest.raises(OutputExistsError, match="near already holds a data set, or a part of one"):
        write_parts(samples, range(2, 4), out=(near, f"file://{far}"), **options)
    assert content(near) == before
    write_parts(samples, range(2, 4), out=(near, f"file://{far}"), exist_ok=True, **options)
    assert content(near) == content(far) == content(other)


def test_nothing_is_removed_anywhere_if_something_must_stay(tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "keep_local": True, "processes": 0}
    write_parts(samples, range(4), **options)
    (far / "notes.txt").write_text("precious")
    before = content(near), content(far)
    with pytest.raises(OutputExistsError, match=r"notes\.txt'; nothing was removed"):
        write_parts(samples, range(2), exist_ok=True, **options)
    assert (content(near), content(far)) == before
    (far / "notes.txt").unlink()
    write_parts(samples, range(2), exist_ok=True, **options)
    assert content(near) == content(far)
    assert ids(near) == list(range(2 * SIZE))


def test_the_removal_of_the_set_of_a_writer_goes_on_after_a_kill(tmp_path, monkeypatch):
    with MDSWriter(columns=COLUMNS, out=tmp_path / "set", max_samples_per_shard=1) as writer:
        for sample in list(samples(0))[:3]:
            writer.write(sample)
    options = {**OPTIONS, "out": tmp_path / "set", "processes": 0}

    def killed(storage, *keys):
        for key in keys:
            if key.startswith("shard"):
                raise KeyboardInterrupt
            storage.delete(key)

    with monkeypatch.context() as context:
        context.setattr("streamplug_tools.dataset_removal.delete_durably", killed)
        with pytest.raises(KeyboardInterrupt):
            write_parts(samples, range(2), exist_ok=True, **options)
    assert not (tmp_path / "set" / "index.json").exists()
    (tmp_path / "set" / "notes.txt").write_text("precious")
    with pytest.raises(OutputExistsError, match=r"notes\.txt'; nothing was removed"):
        write_parts(samples, range(2), exist_ok=True, **options)
    (tmp_path / "set" / "notes.txt").unlink()
    write_parts(samples, range(2), exist_ok=True, **options)
    assert ids(tmp_path / "set") == list(range(2 * SIZE))
    assert not list((tmp_path / "set").glob("shard*"))


def test_what_is_no_part_is_not_taken_for_one(tmp_path, undisturbed):
    out = tmp_path / "set"
    write_parts(samples, range(5), out=out, processes=0, **OPTIONS)
    (out / "index.json").unlink()  # as if the run had been killed while it wrote the part
    (out / "part-00002" / "index.json").unlink()
    (out / "part-00002" / "shard.00000.mds.gz").write_text("half")
    write_parts(samples, range(5), out=out, processes=0, **OPTIONS)
    assert content(out) == undisturbed


class Twice(Engine):
    """Shows tasks the task itself."""

    task = None

    def run(self, task, numbers):
        Twice.task = task
        return Local(0).run(task, numbers)


class Elsewhere(Engine):
    """Calls tasks in another folder."""

    def __init__(self, folder):
        self.folder = folder / "elsewhere"

    def run(self, task, numbers):
        self.folder.mkdir()
        os.chdir(self.folder)
        return Local(0).run(task, numbers)


@pytest.mark.parametrize(("deaths", "works"), [(2, True), (3, False)])
def test_process_that_dies_is_replaced(tmp_path, monkeypatch, undisturbed, deaths, works):
    monkeypatch.setenv("STREAMPLUG_MARKS", str(tmp_path))
    monkeypatch.setenv("STREAMPLUG_DEATHS", str(deaths))
    if works:
        write_parts(deadly, range(5), out=tmp_path / "set", processes=2, **OPTIONS)
        assert content(tmp_path / "set") == undisturbed
    else:
        with pytest.raises(WriterError, match=r"part 0: 3 processes have died over it, .* code -9"):
            write_parts(deadly, [3], out=tmp_path / "set", processes=1, **OPTIONS)


def test_error_of_a_script_without_a_guard_names_it(tmp_path):
    (tmp_path / "script.py").write_text(
        "from streamplug import write_parts\n"
        "def samples(part): yield {'id': part}\n"
        "write_parts(samples, [0], columns={'id': 'int'}, out='set', processes=1)\n"
    )
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    *_, last = done.stderr.splitlines()
    assert "WriterError: part 0: 3 processes have died over it" in last
    assert 'if __name__ == "__main__":' in last


def test_batches_give_the_bytes_of_samples(tmp_path, undisturbed):
    write_parts(halves, range(5), out=tmp_path / "set", processes=0, batched=True, **OPTIONS)
    assert content(tmp_path / "set") == undisturbed
    assert json.loads((tmp_path / "set" / "parts.json").read_bytes())["batched"]


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
    for kill in range(50 if SOAK else 1):
        out = tmp_path / "set" / str(kill)
        process = subprocess.Popen([*command, str(out)], start_new_session=True)
        deadline = time.monotonic() + 60
        while not (out / ".attempts").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        if (out / "index.json").exists():  # it was too late, and files of attempts may be left
            assert undisturbed.items() <= content(out).items()
            continue
        subprocess.run([*command, str(out)], check=True, timeout=120)
        assert content(out) == undisturbed


def test_a_run_that_is_active_is_not_replaced_through_a_link(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "set")
    options = {"columns": COLUMNS, "processes": 0}
    seen = []

    def both(part):
        yield from samples(part)
        if part:
            with pytest.raises(OutputExistsError, match="is being written by another process"):
                write_parts(samples, [5], out=tmp_path / "link", **options)
            seen.append(part)

    write_parts(both, [0, 1], out=tmp_path / "set", **options)
    assert seen == [1]


def test_data_sets_may_be_written_at_once_through_the_same_local_directory(tmp_path):
    near = str(tmp_path / "near")

    def other(part):
        yield from samples(part)

    def both(part):
        rows = list(samples(part))
        yield rows[0]
        options = {"columns": COLUMNS, "processes": 0}
        write_parts(other, [1], out=(near, str(tmp_path / "b")), **options)
        yield from rows[1:]

    write_parts(both, [1], columns=COLUMNS, out=(near, str(tmp_path / "a")), processes=0)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert not list(Path(near).iterdir())


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


def endless(part):
    while part:
        time.sleep(0.1)
    yield from samples(part)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_processes_end_with_an_error_of_the_caller(tmp_path, error):
    def report(done, count):
        if done:
            raise error

    with pytest.raises(error) as caught:
        write_parts(endless, range(3), out=tmp_path, processes=2, on_progress=report, **OPTIONS)
    assert not [p for p in multiprocessing.active_children() if p.name == "streamplug-write"]
    assert caught.tb is not None  # it refers to the variables of all frames


def test_secrets_are_in_no_error_and_no_repr(tmp_path):
    def make(part):
        raise ValueError("no such thing")

    url = "https://me:SECRET@127.0.0.1/set?token=SECRET"
    with pytest.raises(WriterError, match="no such thing") as caught:
        write_parts(make, [{"set": [url]}], columns=COLUMNS, out=tmp_path / "out", processes=0)
    assert "127.0.0.1/set" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    task = PartTask(make, (url,), (url,), COLUMNS, {}, {"key": "SECRET"}, {}, {})
    assert "SECRET" not in repr(task)


def test_only_what_is_of_a_set_is_removed(tmp_path):
    out = tmp_path / "set"
    write_parts(samples, range(2), out=out, processes=0, **OPTIONS)
    (out / ".attempts" / "1-x").mkdir(parents=True)
    (out / ".attempts" / "1-x" / "shard.00000.mds").touch()
    (out / "index.streamplug").touch()  # of an earlier version
    for name in ("notes.txt", "part-00000/notes.txt", "train/index.json", "shard.00009.mds"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).touch()
        before = content(out)
        with pytest.raises(OutputExistsError, match=f"not of its data set: '{name}'; nothing was"):
            write_parts(samples, range(3), out=out, processes=0, exist_ok=True, **OPTIONS)
        assert content(out) == before
        (out / name).unlink()
    write_parts(samples, range(3), out=out, processes=0, exist_ok=True, **OPTIONS)
    write_parts(samples, range(3), out=tmp_path / "new", processes=0, **OPTIONS)
    assert content(out) == content(tmp_path / "new")


@pytest.mark.parametrize("name", ["part-00000/index.json", "notes.txt"])
def test_files_of_others_are_neither_taken_for_parts_nor_removed(tmp_path, name):
    out = tmp_path / "set"
    with MDSWriter(columns=COLUMNS, out=out / "part-00000") as writer:
        writer.write({"id": -1, "text": "x"})
    if name == "notes.txt":
        (out / "part-00000").rename(tmp_path / "part")
        (out / name).touch()
    before = content(out)
    for exist_ok in (False, True):
        for make in (samples, broken):
            with pytest.raises(OutputExistsError, match=f"holds other files, such as '{name}'"):
                write_parts(make, range(2), out=out, processes=0, exist_ok=exist_ok, **OPTIONS)
        assert content(out) == before


def test_sets_of_a_single_writer_and_merged_ones_are_replaced(tmp_path):
    merge_index = pytest.importorskip("streamplug_tools.merge").merge_index
    for folder in ("a", "b"):
        with MDSWriter(columns=COLUMNS, out=tmp_path / "set" / folder) as writer:
            writer.write({"id": 1, "text": "x"})
    merge_index(tmp_path / "set")
    write_parts(samples, range(2), out=tmp_path / "set", processes=0, exist_ok=True, **OPTIONS)
    assert len(streamplug.StreamingDataset(local=str(tmp_path / "set"))) == 2 * SIZE
    assert not list((tmp_path / "set").glob("a/*"))


def test_a_part_that_is_a_link_to_elsewhere_is_left_alone(tmp_path):
    write_parts(samples, range(1), out=tmp_path / "other", processes=0, **OPTIONS)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "parts.json").write_text("{}")
    (tmp_path / "set" / "part-00000").symlink_to(tmp_path / "other" / "part-00000")
    before = content(tmp_path / "other")
    with pytest.raises(OutputExistsError, match=r"part-00000"):
        write_parts(samples, range(2), out=tmp_path / "set", processes=0, exist_ok=True, **OPTIONS)
    assert content(tmp_path / "other") == before


@pytest.mark.parametrize("name", ["../notes.txt", "/etc/x.mds", "part-00000/../../notes.txt"])
def test_an_index_that_names_files_elsewhere_removes_none(tmp_path, name):
    (tmp_path / "notes.txt").touch()
    with MDSWriter(columns=COLUMNS, out=tmp_path / "set") as writer:
        writer.write({"id": 1, "text": "x"})
    index = tmp_path / "set" / "index.json"
    index.write_text(index.read_text().replace("shard.00000.mds", name))
    with pytest.raises(OutputExistsError, match=r"shard\.00000\.mds"):
        write_parts(samples, range(2), out=tmp_path / "set", processes=0, exist_ok=True, **OPTIONS)
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    "plan",
    [
        "[" * 100_000,
        "7",
        '{"parts": "../.."}',
        '{"parts": "", "parts_digest": "", "columns": {}}',
        "\0a",
    ],
)
def test_a_plan_that_is_none_of_ours_is_another_set(tmp_path, plan):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "parts.json").write_text(plan)
    with pytest.raises(OutputExistsError, match="already holds a data set"):
        write_parts(samples, range(2), out=tmp_path / "set", processes=0, **OPTIONS)
    write_parts(samples, range(1), out=tmp_path / "set", processes=0, exist_ok=True, **OPTIONS)


@pytest.mark.parametrize(
    ("old", "new"), [("shard.00000", "../../shard.00000"), ('"int"', '"imt"'), ("bytes", "bites")]
)
def test_a_part_with_a_damaged_index_is_written_again(tmp_path, old, new):
    write_parts(samples, range(2), out=tmp_path / "set", processes=0, **OPTIONS)
    (tmp_path / "set" / "index.json").unlink()
    index = tmp_path / "set" / "part-00001" / "index.json"
    index.write_text(index.read_text().replace(old, new))
    (tmp_path / "shard.00000.mds.gz").touch()
    write_parts(samples, range(2), out=tmp_path / "set", processes=0, **OPTIONS)
    assert len(list(streamplug.StreamingDataset(local=str(tmp_path / "set")))) == 2 * SIZE
    assert (tmp_path / "shard.00000.mds.gz").exists()


def test_a_part_is_found_by_its_own_name_only(undisturbed):
    import fsspec

    memory = fsspec.filesystem("memory")
    write_parts(samples, range(5), out="memory://misnamed", processes=0, **OPTIONS)
    memory.rm("/misnamed/index.json")
    memory.mv("/misnamed/part-00001", "/misnamed/part-000001", recursive=True)
    write_parts(samples, range(5), out="memory://misnamed", processes=0, **OPTIONS)
    assert memory.cat("/misnamed/index.json") == undisturbed["index.json"]
    assert memory.exists("/misnamed/part-00001/index.json")


def test_a_plan_of_more_parts_than_can_be_counted_is_replaced(tmp_path, undisturbed):
    (tmp_path / "set").mkdir()
    plan = {"parts": 10**30, "parts_digest": "", "columns": {}}
    (tmp_path / "set" / "parts.json").write_text(json.dumps(plan))
    write_parts(samples, range(5), out=tmp_path / "set", processes=0, **OPTIONS)
    assert content(tmp_path / "set") == undisturbed


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", ["index.json", "shard.00000.mds.gz"])
def test_a_part_that_a_loss_of_power_left_empty_is_written_again(tmp_path, undisturbed, name, size):
    out = tmp_path / "set"
    write_parts(samples, range(5), out=out, processes=0, **OPTIONS)
    (out / "index.json").write_bytes(b"\0" * size)
    (out / "part-00002" / name).write_bytes(b"\0" * size)
    write_parts(samples, range(5), out=out, processes=0, **OPTIONS)
    assert content(out) == undisturbed


@pytest.mark.parametrize("plan", ["", "\0\0"])
def test_a_plan_that_a_loss_of_power_left_empty_is_that_of_an_unfinished_run(
    tmp_path, undisturbed, plan
):
    out = tmp_path / "set"
    write_parts(samples, range(3), out=out, processes=0, **{**OPTIONS, "hashes": ["md5"]})
    (out / "index.json").unlink()
    (out / "parts.json").write_text(plan)
    write_parts(samples, range(5), out=out, processes=0, **OPTIONS)
    assert content(out) == undisturbed


# -- what is replaced, and what is left --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": {"id": "nothing"}}, PluginError),
        ({"format": "nothing"}, PluginError),
        ({"max_workers": 0}, ConfigError),
        ({"durable": "yes"}, ConfigError),
        ({"extra_keys": "some"}, ConfigError),
        ({"size_limt": 3}, (ConfigError, TypeError)),
    ],
)
def test_a_data_set_is_not_removed_for_an_argument_that_is_wrong(
    tmp_path, undisturbed, options, error
):
    place = tmp_path / "set"
    write_parts(samples, range(5), out=place, processes=0, **OPTIONS)
    with pytest.raises(error):
        write_parts(samples, [7], out=place, processes=0, exist_ok=True, **{**OPTIONS, **options})
    assert content(place) == undisturbed


def test_options_of_a_format_object_make_another_data_set(tmp_path):
    XSV = pytest.importorskip("streamplug_text.xsv").XSV
    options = {"columns": COLUMNS, "out": tmp_path / "set", "processes": 0}
    write_parts(samples, range(2), format=XSV(";"), **options)
    before = content(tmp_path / "set")
    with pytest.raises(
        OutputExistsError, match="already holds the finished data set of the same call"
    ):
        write_parts(samples, range(2), format=XSV(";"), **options)
    assert content(tmp_path / "set") == before
    with pytest.raises(OutputExistsError, match=r"format was 'XSV \w+', not 'XSV \w+'"):
        write_parts(samples, range(2), format=XSV("|"), **options)
    write_parts(samples, range(2), format=XSV("|"), exist_ok=True, **options)
    assert b"|" in content(tmp_path / "set")["part-00000/shard.00000.xsv"]


def test_a_format_object_that_cannot_be_pickled_is_known_by_its_name():
    class Unpicklable(MDS):
        def __reduce_ex__(self, protocol):
            raise TypeError

    options = {"hashes": (), "format": Unpicklable()}
    first, second = (make_plan([0], samples, COLUMNS, options, batched=False) for _ in range(2))
    assert first["format"].startswith("Unpicklable ")
    assert first == second


def test_batches_and_samples_make_different_data_sets(tmp_path):
    options = {**OPTIONS, "out": tmp_path / "set", "processes": 0}
    write_parts(samples, range(2), **options)
    with pytest.raises(OutputExistsError, match="batched was False, not True"):
        write_parts(halves, range(2), batched=True, **options)


def test_a_data_set_of_a_declared_identity_is_continued_and_kept_with_a_warning(tmp_path, caplog):
    options = {**OPTIONS, "out": tmp_path / "set", "processes": 0}
    with pytest.raises(WriterError):
        write_parts(
            Known(lambda part: broken(part) if part else samples(part), "v1"), range(2), **options
        )
    with pytest.raises(OutputExistsError, match="make_samples= had other code"):
        write_parts(Known(samples, "v2"), range(2), **options)
    # Continues: the first part is kept.
    write_parts(Known(samples, "v1"), range(2), exist_ok=True, **options)
    assert not caplog.records
    before = content(tmp_path / "set")
    write_parts(Known(broken, "v1"), range(2), **options)
    assert not caplog.records
    write_parts(Known(broken, "v1"), range(2), exist_ok=True, **options)
    assert content(tmp_path / "set") == before
    [record] = caplog.records
    assert "is kept as it is: it was written with the same arguments" in record.message


def test_numbers_of_numpy_are_options_like_others(tmp_path):
    options = {**OPTIONS, "size_limit": np.int64(2000), "max_samples_per_shard": np.int64(10)}
    place = tmp_path / "set"
    write_parts(samples, range(2), out=place, processes=0, **OPTIONS)
    write_parts(samples, range(2), out=place, processes=0, exist_ok=True, **options)
    before = content(place)
    with pytest.raises(OutputExistsError, match="finished data set of the same call"):
        write_parts(samples, range(2), out=place, processes=0, **OPTIONS, max_samples_per_shard=10)
    assert content(place) == before
    assert len([name for name in before if name.startswith("part-00000/shard")]) == 10


def test_samples_that_were_appended_are_not_dropped(tmp_path):
    place = tmp_path / "set"
    write_parts(Known(samples), range(2), out=place, processes=0, **OPTIONS)
    with MDSWriter(out=place, append=True) as writer:
        writer.write({"id": -1, "text": ""})
    before = content(place)
    with pytest.raises(OutputExistsError, match=r"was changed after .* as by append=True"):
        write_parts(Known(samples), range(2), out=place, processes=0, **OPTIONS)
    assert content(place) == before
    next((place / "part-00000").glob("shard*")).write_bytes(b"")  # by a loss of power
    before = content(place)
    with pytest.raises(OutputExistsError, match=r"was changed after .* as by append=True"):
        write_parts(Known(samples), range(2), out=place, processes=0, **OPTIONS)
    assert content(place) == before


def test_a_damaged_part_may_be_written_again_with_other_samples(tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0, "keep_local": True}
    runs = []

    def crawl(part):
        runs.append(part)
        for _ in range(SIZE):
            yield {"id": len(runs), "text": "long" * len(runs)}

    def interrupted(part):
        yield from crawl(part)
        raise RuntimeError("not now")

    write_parts(Known(crawl), range(2), **options)
    next((far / "part-00001").glob("shard*")).write_bytes(b"")
    with pytest.raises(WriterError, match="not now"):
        write_parts(Known(interrupted), range(2), **options)
    for place in (near, far):
        assert not (place / "index.json").exists()  # rather than one of the part as it was
    for _ in range(2):
        write_parts(Known(crawl), range(2), **options)
        assert ids(near) == ids(far) == [1] * SIZE + [4] * SIZE


@pytest.mark.parametrize("hashes", [[], ["sha1"]])
def test_a_damaged_copy_is_made_again_of_what_was_uploaded(tmp_path, hashes):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0, "keep_local": True}
    write_parts(Known(samples), range(3), **{**options, "hashes": hashes})
    before = content(far)
    next((near / "part-00000").glob("shard*")).write_bytes(b"")
    (near / "part-00001" / "index.json").unlink()
    write_parts(Known(broken), range(3), **{**options, "hashes": hashes})
    assert content(near) == content(far) == before


def test_a_copy_of_an_appended_data_set_keeps_its_index(tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0, "keep_local": True}
    write_parts(Known(samples), range(2), **options)
    with MDSWriter(out=far, append=True) as writer:
        writer.write({"id": -1, "text": ""})
    before = content(near)
    with pytest.raises(OutputExistsError, match=r"was changed after .* as by append=True"):
        write_parts(Known(samples), range(2), **options)
    assert content(near) == before


def fails_late(part):
    if part == 12:
        raise RuntimeError("not now")
    yield from samples(part)


def test_a_local_copy_has_no_index_of_other_parts(tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0, "keep_local": True}
    write_parts(Known(samples), range(3), **options)
    with pytest.raises(WriterError, match="not now"):
        write_parts(Known(fails_late), range(10, 14), exist_ok=True, **options)
    assert not (near / "index.json").exists()
    write_parts(Known(samples), range(10, 14), **options)
    assert (near / "index.json").read_bytes() == (far / "index.json").read_bytes()
    assert ids(near) == ids(far) == list(range(10 * SIZE, 14 * SIZE))


def test_a_local_copy_gets_the_parts_that_it_lacks(tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0, "keep_local": True}
    with pytest.raises(WriterError, match="not now"):
        write_parts(Known(fails_late), range(10, 14), **options)
    before = content(far)
    shutil.rmtree(near)  # as of a run that goes on on another machine
    write_parts(Known(samples), range(10, 14), **options)
    assert ids(near) == ids(far) == list(range(10 * SIZE, 14 * SIZE))
    assert before.items() <= content(far).items()


def test_a_part_that_cannot_be_copied_is_an_error(tmp_path):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}"
    options = {**OPTIONS, "out": (near, far), "processes": 0, "keep_local": True}
    write_parts(samples, range(2), **options)
    damaged = next((near / "part-00001").glob("shard*")).name
    shutil.rmtree(near / "part-00001")
    open_storage(f"{far}/part-00001").write(damaged, b"")
    with pytest.raises(WriterError, match=r"part 1 \(1\): CorruptShardError: .* has 0 bytes"):
        write_parts(samples, range(2), **options)
    assert not (near / "index.json").exists()


def test_a_part_that_is_only_uploaded_is_an_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    near, far = tmp_path / "near", tmp_path / "far"
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0, "keep_local": True}
    with monkeypatch.context() as context:
        context.setattr("streamplug_tools.part_task.install_attempt", full)
        with pytest.raises(WriterError, match="No space left on device"):
            write_parts(samples, range(2), **options)
    assert not (near / "index.json").exists()
    write_parts(samples, range(2), **options)
    assert content(near) == content(far)


def test_the_index_of_another_data_set_is_not_removed_from_the_local_place(tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    write_parts(samples, range(2), out=near, processes=0, **OPTIONS)
    before = content(near)
    options = {**OPTIONS, "out": (near, f"file://{far}"), "processes": 0}
    write_parts(samples, range(1, 3), **options)
    assert content(near) == before
    write_parts(samples, range(1, 3), exist_ok=True, **options, keep_local=True)
    assert content(near) == content(far)
    before = content(near)
    with pytest.raises(OutputExistsError, match="finished data set of the same call"):
        write_parts(samples, range(1, 3), **options)
    assert content(near) == before
