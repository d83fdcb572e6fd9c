"""Commands that write or remove data sets: exit codes, JSON, Ctrl-C, and what a kill leaves."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamplug import Writer
from streamplug.cli import main
from streamplug.interfaces import public_url
from tests import warm_python

COMMANDS = {
    "append": (["{source}", "{out}"], "streamplug_tools.part_task:PartTask._write"),
    "copy": (["{source}", "{out}"], "streamplug.builtin.local_storage:LocalStorage.upload"),
    "dedup": (["{source}", "{out}", "--by", "id"], "streamplug_tools.part_task:PartTask._write"),
    "delete": (["{out}", "--yes"], "streamplug.builtin.local_storage:LocalStorage.delete"),
    "join": (
        ["{source}", "{other}", "--by", "id", "--how", "left", "--out", "{out}"],
        "streamplug_tools.part_task:PartTask._write",
    ),
}
"""Arguments of commands, and what they call for each file or part."""
JOBS = {"append", "dedup", "join"}

SIGNALLED = """
import os, signal, sys
from importlib import import_module

from streamplug.cli import main

target, number, calls, *arguments = sys.argv[1:]
module, _, path = target.partition(":")
owner, name = path.split(".")
cls = getattr(import_module(module), owner)
original, count = getattr(cls, name), 0

def signalled(*given, **options):
    global count
    count += 1
    if count == int(calls):
        os.kill(os.getpid(), int(number))
    return original(*given, **options)

setattr(cls, name, signalled)
main(arguments)
"""


@pytest.fixture
def places(tmp_path):
    for name, column in (("source", "text"), ("other", "half")):
        with Writer(
            columns={"id": "int", column: "json"}, out=tmp_path / name, size_limit=1000
        ) as writer:
            for n in range(200):
                writer.write({"id": n, column: f"{column} {n}"})
    return {name: str(tmp_path / name) for name in ("source", "other", "out")}


def arguments_of(command, places, *options):
    given = [text.format(**places) for text in COMMANDS[command][0]]
    if command in JOBS:
        options = (*options, "--processes", "0", "--size-limit", "400")
    if command == "copy":
        options = (*options, "--threads", "1")
    return [command, *given, *options]


def prepare(command, places):
    if command == "delete":
        shutil.copytree(places["source"], places["out"])


def run(command, places, *options):
    return CliRunner().invoke(main, arguments_of(command, places, *options))


def signalled(command, places, number, calls=2):
    """Run a command in a process that sends itself a signal at a call."""
    arguments = arguments_of(command, places)
    where = COMMANDS[command][1]
    return warm_python.run(["-c", SIGNALLED, where, f"{int(number)}", f"{calls}", *arguments])


def files_of(place):
    """Return the files of a data set with their bytes; without plans, which name no samples."""
    return {
        path.relative_to(place): path.read_bytes()
        for path in Path(place).rglob("*")
        if path.is_file() and path.name != "parts.json"
    }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such signal")
def test_a_killed_command_is_repeated_and_ends_as_if_it_had_not_been_killed(
    places, tmp_path, command
):
    prepare(command, places)
    whole = {**places, "out": str(tmp_path / "whole")}
    prepare(command, whole)
    assert run(command, whole).exit_code == 0
    killed = signalled(command, places, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not Path(places["out"], "index.json").exists()
    if command == "delete":
        assert len(files_of(places["out"])) > 1
    again = run(command, places)
    assert again.exit_code == 0, again.output
    assert files_of(places["out"]) == files_of(whole["out"])
    assert Path(places["out"]).exists() == (command != "delete")


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_says_how_to_go_on(places, command):
    prepare(command, places)
    stopped = signalled(command, places, signal.SIGINT)
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.startswith("interrupted; run the same command again: it ")
    assert "Traceback" not in stopped.stderr
    assert run(command, places).exit_code == 0


JSON = {
    "append": {"shards": 28, "samples": 200, "bytes": 0, "appended": 200},
    "copy": {"files": 0, "bytes": 0, "copied": 0},
    "dedup": {"shards": 0, "samples": 200, "bytes": 0, "bad": []},
    "delete": {"removed": True, "files": [], "bytes": 0, "kept": []},
    "join": {"shards": 0, "samples": 200, "bytes": 0, "bad": []},
}
"""Keys of the output, and the values that do not depend on sizes of shards."""


@pytest.mark.parametrize("command", COMMANDS)
def test_the_result_is_printed_as_json(places, command):
    prepare(command, places)
    result = run(command, places, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed.keys() == {"url", *JSON[command]}
    assert printed["url"] == public_url(places["out"])
    assert printed.get("samples", 200) == 200
    assert printed["bytes"] > 200


@pytest.mark.parametrize("command", COMMANDS)
def test_a_location_without_a_data_set_is_an_error(places, tmp_path, command):
    empty = {name: str(tmp_path / "none") for name in places} | {"out": str(tmp_path / "o")}
    result = run(command, empty)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert "no data set" in result.stderr
    assert not Path(empty["out"]).exists()
