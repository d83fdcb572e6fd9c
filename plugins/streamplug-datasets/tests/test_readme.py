from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import click
import pytest
from streamplug_datasets import __all__ as names
from streamplug_datasets.cli import COMMANDS, main

README = Path(__file__).parents[1] / "README.md"
LINES = re.findall(r"^streamplug-datasets (.*)$", README.read_text(), re.MULTILINE)


def test_each_command_has_a_line():
    assert sorted(line.split()[0] for line in LINES) == sorted(COMMANDS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_line_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(line)
    for option in ("--in", "--vocab"):
        if option in arguments and "://" not in line.split(option)[1].split()[0]:
            path = Path(arguments[arguments.index(option) + 1])
            path.touch() if path.suffix else path.mkdir()
    command = main.get_command(click.Context(main), name)
    context = command.make_context(name, arguments)
    assert context.params["out"].startswith("s3://bucket/")
    assert name == "webvid-extract" or context.params["root"].exists()


def test_example_runs():
    assert doctest.testfile(str(README), module_relative=False).failed == 0


def test_every_class_is_described():
    text = README.read_text()
    assert [name for name in names if f"`{name}`" not in text] == []
