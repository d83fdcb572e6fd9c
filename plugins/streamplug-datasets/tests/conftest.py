"""Commands as users give them, and a step of training."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner
from streamplug_datasets.cli import main


class Result:
    """What a command did: its exit code, what it printed, and what it said of errors."""

    def __init__(self, ran):
        self.code, self.error, self.ran = ran.exit_code, ran.stderr, ran
        self.out = ran.stdout

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Run ``streamplug-datasets`` with what follows it in a shell, without processes of its own."""
    monkeypatch.chdir(tmp_path)

    def run(line):
        ran = CliRunner().invoke(main, [*shlex.split(line), "--processes", "0"])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Result(ran)

    return run


@pytest.fixture
def converted(convert):
    """As `convert`; the command must succeed, and its JSON is returned."""

    def run(line):
        result = convert(f"{line} --json")
        assert result.code == 0, result.error
        return result.json

    return run


@pytest.fixture
def refused(convert):
    """As `convert`; the command must fail, and what it says is returned."""

    def run(line):
        result = convert(line)
        assert result.code == 1, result.out
        return result.error

    return run
