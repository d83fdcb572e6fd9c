"""What a run that failed or was killed has left does not stand in the way of a corrected one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, StreamingDataset, write_parts
from streamplug.cli import main
from streamplug.errors import OutputExistsError, WriterError
from streamplug.plugin import open_storage


@pytest.fixture
def source(tmp_path):
    """Texts of which the last is no number."""
    with MDSWriter(columns={"id": "int", "text": "str"}, out=tmp_path / "source") as writer:
        for n in range(1000):
            writer.write({"id": n, "text": str(n) if n < 999 else "none"})
    return tmp_path / "source"


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def convert(source, out, *options):
    return run("convert", source, out, "--processes", "0", *options)


def test_a_convert_that_failed_leaves_nothing_and_is_corrected(source, tmp_path):
    failed = convert(source, tmp_path / "out", "--columns", "text:int")
    assert failed.exit_code == 2
    assert "column 'text'" in failed.stderr
    assert not (tmp_path / "out").exists()
    done = convert(source, tmp_path / "out", "--columns", "text:bytes")
    assert done.exit_code == 0, done.stderr
    assert len(StreamingDataset(local=str(tmp_path / "out"))) == 1000


def test_a_directory_that_was_there_stays(source, tmp_path):
    (tmp_path / "out").mkdir()
    assert convert(source, tmp_path / "out", "--columns", "text:int").exit_code == 2
    assert list((tmp_path / "out").iterdir()) == []


LATE = ["--size-limit", "400", "--columns", "id:uint8"]
"""Fails at a number that is too large, when some parts are finished."""


def test_parts_that_were_finished_before_the_failure_are_replaced_too(source, tmp_path, caplog):
    assert convert(source, tmp_path / "out", *LATE).exit_code == 2
    finished = list((tmp_path / "out").glob("part-*/index.json"))
    assert finished
    corrected = ["--size-limit", "400", "--columns", "id:int16"]
    refused = convert(source, tmp_path / "out", *corrected)
    assert refused.exit_code == 2
    assert "columns was {'id': 'uint8'" in refused.stderr
    done = convert(source, tmp_path / "out", *corrected, "--exist-ok")
    assert done.exit_code == 0, done.stderr
    assert f"{len(finished)} finished parts of a data set that was not completed" in caplog.text
    assert StreamingDataset(local=str(tmp_path / "out"))[999]["id"] == 999


def test_files_of_the_user_among_the_leftovers_are_never_removed(source, tmp_path):
    assert convert(source, tmp_path / "out", *LATE).exit_code == 2
    (tmp_path / "out" / "notes.txt").write_text("mine")
    refused = convert(source, tmp_path / "out", "--columns", "id:int16", "--exist-ok")
    assert refused.exit_code == 2
    assert "holds files that are not of its data set: 'notes.txt'" in refused.stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_finished_set_is_still_not_replaced(source, tmp_path):
    assert convert(source, tmp_path / "out").exit_code == 0
    refused = convert(source, tmp_path / "out", "--drop", "text")
    assert refused.exit_code == 2
    assert "already holds a data set" in refused.stderr


KILLED = """
import os, signal, sys
from streamplug import write_parts

def make(part):
    for n in range(100):
        if part == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"n": n}

write_parts(make, range(4), columns={"n": "int"}, out=sys.argv[1], processes=0)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such signal")
def test_what_a_killed_run_has_left_is_continued_or_replaced(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(out)]
    assert subprocess.run(command, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL
    assert len(list(out.glob("part-*/index.json"))) == 2
    corrected = {"columns": {"n": "int32"}, "processes": 0}
    with pytest.raises(OutputExistsError, match="parts was 4, not 3"):
        write_parts(lambda _: [{"n": 1}], range(3), out=out, **corrected)
    write_parts(lambda _: [{"n": 1}], range(3), out=out, exist_ok=True, **corrected)
    assert len(StreamingDataset(local=str(out))) == 3
    assert json.loads((out / "parts.json").read_bytes())["columns"] == {"n": "int32"}
    assert not (out / ".attempts").exists()


def test_what_still_is_being_written_is_not_replaced(tmp_path):
    other = {"out": tmp_path / "out", "processes": 0}
    refused = []

    def make(_):
        with pytest.raises(OutputExistsError, match="is being written by another process") as error:
            write_parts(lambda _: [{"n": 1}], [0], columns={"n": "int8"}, **other)
        refused.append(error)
        yield {"n": 2}

    write_parts(make, [0], columns={"n": "int"}, **other)
    assert len(refused) == 1
    assert StreamingDataset(local=str(tmp_path / "out"))[0] == {"n": 2}


@pytest.mark.parametrize("near", [False, True])
def test_a_failed_run_in_a_storage_leaves_nothing_there(tmp_path, near):
    far = f"memory://{tmp_path.name}-{near}"
    out = (tmp_path / "near", far) if near else far
    with pytest.raises(WriterError, match="column 'n'"):
        write_parts(lambda _: [{"n": "x"}], [0], columns={"n": "int"}, out=out, processes=0)
    assert list(open_storage(far).list("")) == []
    write_parts(lambda _: [{"n": "x"}], [0], columns={"n": "str"}, out=out, processes=0)
