"""Jobs on clusters whose machines share the source and the output, and no temporary directory."""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from streamplug_tools import (
    Output,
    append,
    convert,
    dedup,
    join,
    select,
    shuffle,
    sort,
    split_by_fractions,
)
from streamplug_tools.selection_order import OrderFiles, SharedOrder
from streamplug_tools.tasks import pack_task

from streamplug import Engine, Stream
from streamplug.errors import StorageError, WriterError
from streamplug.transfer.tempdir import temp_root


class OtherMachine(Engine):
    """Runs tasks as another machine does: with its own temporary and working directory."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def run(self, task, numbers):
        data = pack_task(task)
        home, hidden = temp_root(), self.folder / "hidden"
        before, tempfile.tempdir, working = tempfile.tempdir, str(self.folder), Path.cwd()
        home.rename(hidden)
        os.chdir(self.folder)
        try:
            call = pickle.loads(data)
            for number in numbers:
                call(number)
            del call
            gc.collect()
            assert not list(temp_root().glob("*/*"))
        finally:
            os.chdir(working)
            tempfile.tempdir = before
            hidden.rename(home)
        yield from numbers


JOBS = {
    "convert": lambda source, output: convert(source, output("")),
    "join": lambda source, output: join([source, "other"], output(""), "id"),
    "select": lambda source, output: select(source, output(""), "id % 3 == 1"),
    "select none": lambda source, output: select(source, output(""), "id < 0"),
    "shuffle": lambda source, output: shuffle(source, output(""), seed=3),
    "sort": lambda source, output: sort(source, output(""), "name"),
    "split": lambda source, output: split_by_fractions(source, output, {"a": 0.5, "b": 0.25}),
}


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize("compression", [None, "gz"])
def test_machines_need_no_common_temporary_directory(
    tmp_path, write, content, temporary, monkeypatch, job, compression
):
    monkeypatch.chdir(tmp_path)
    write("source", range(200), compression=compression)
    write("other", range(50, 300), columns={"id": "int", "other": "int"}, make=make_other)
    for place, engine in (("here", "local:0"), ("there", OtherMachine(tmp_path / "machine"))):

        def output(name, place=place, engine=engine):
            return Output(tmp_path / place / name, size_limit=500, engine=engine)

        JOBS[job]("source", output)
    assert content("there") == content("here")
    assert len(content("there")) > (2 if job == "select none" else 5)
    assert not list((tmp_path / "there").rglob(".attempts"))


def make_other(n):
    return {"id": n, "other": -n}


class StartsLate(Engine):
    """Runs tasks in a process that starts after a function was called."""

    def __init__(self, function):
        self._function = function

    def run(self, task, numbers):
        data = pack_task(task)
        self._function()
        call = pickle.loads(data)
        for number in numbers:
            call(number)
            yield number


def test_samples_whose_numbers_change_during_a_job_are_not_mixed_up(tmp_path, write, source):
    def replace():
        write(tmp_path / "source", range(1000, 1200), exist_ok=True)

    with pytest.raises(WriterError, match=r"source: files were added, replaced or removed while"):
        convert(source, Output(tmp_path / "out", engine=StartsLate(replace)))
    assert not (tmp_path / "out" / "index.json").exists()


@pytest.mark.parametrize(
    "job",
    [
        lambda source, other, out, then: sort(source, out, "id", on_progress=then),
        lambda source, other, out, then: dedup(source, out, "id", on_progress=then),
        lambda source, other, out, then: select(source, out, "id > 3", on_progress=then),
        lambda source, other, out, then: join([source, other], out, "id", on_progress=then),
    ],
)
def test_files_that_come_while_keys_are_read_are_told(tmp_path, write, job):
    pytest.importorskip("streamplug_text")

    def lines(name, numbers):
        (tmp_path / "in" / name).write_text("".join(f'{{"id": {n}}}\n' for n in numbers))

    def on_progress(_):
        lines("a.jsonl", range(1000, 1005))

    (tmp_path / "in").mkdir()
    lines("b.jsonl", range(20))
    source = Stream(remote=str(tmp_path / "in"), format="jsonl")
    other = write(tmp_path / "other", range(20), {"id": "int", "other": "int"}, make_other)
    with pytest.raises(StorageError, match=r"in: files were added, replaced or removed while"):
        job(source, other, Output(tmp_path / "out", format="mds", processes=0), on_progress)


def test_a_data_set_may_grow_during_a_job(tmp_path, write, source, read):
    more = write(tmp_path / "more", range(500, 510))

    def grow():
        append(more, Output(source, processes=0))

    convert(source, Output(tmp_path / "out", engine=StartsLate(grow)))
    assert read(tmp_path / "out")["id"].tolist() == list(range(200))
    first = write(tmp_path / "first", range(3))
    write(tmp_path / "more", range(600, 610), exist_ok=True)
    with pytest.raises(WriterError, match="source: files were added"):  # the numbers that follow
        convert([source, first], Output(tmp_path / "both", engine=StartsLate(grow)))


def test_lists_of_a_failed_job_are_removed(tmp_path, source, temporary):
    class Lost(Engine):
        def run(self, task, numbers):
            task(numbers[0])
            yield numbers[0]
            assert list((tmp_path / "out").rglob("ids-0"))
            raise WriterError("part 1: lost")

    with pytest.raises(WriterError, match="lost"):
        select(source, Output(tmp_path / "out", size_limit=500, engine=Lost()), "id > 3")
    assert not list((tmp_path / "out").rglob("ids-0"))


def test_lists_in_a_storage_are_read_in_blocks(tmp_path):
    lists = OrderFiles(tmp_path, ["a"])
    numbers = np.random.default_rng(0).integers(0, 1 << 40, 150_000)
    lists.add("a", numbers)
    order = SharedOrder(str(tmp_path), "ids-0", len(numbers), None)
    for begin, end in ((0, 0), (0, 5), (65_530, 65_536), (65_000, 140_000), (149_990, 150_000)):
        assert np.array_equal(order.ids(begin, end), numbers[begin:end])
