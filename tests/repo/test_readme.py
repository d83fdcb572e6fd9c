"""What the README tells people to paste is what the checks run."""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"```console\n(.*?)\n```", README, re.DOTALL)


def test_there_are_two_commands_of_one_line_each():
    assert len(COMMANDS) == 2
    assert not any("\n" in command for command in COMMANDS)


def test_the_script_runs_the_second():
    script = ROOT / ".ci" / "run"
    lines = script.read_text().splitlines()
    assert lines[0].startswith("#!")
    assert "set -euo pipefail" in lines
    assert lines[-1] == COMMANDS[1]
    assert os.access(script, os.X_OK)


def test_the_second_names_environments_that_exist():
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    wanted = COMMANDS[1].rpartition("-e ")[2].split(",")
    assert wanted
    assert [name for name in wanted if f"testenv:{name}" not in tox] == []


def test_the_first_installs_what_exists():
    folders = re.findall(r"\./(plugins/\S+)", COMMANDS[0])
    assert folders
    assert [folder for folder in folders if not (ROOT / folder / "pyproject.toml").exists()] == []


def test_the_linter_has_one_version():
    places = {
        "tests/requirements.txt": r"^ruff==(.+)$",
        "tox.ini": r"^    ruff==(.+)$",
        ".pre-commit-config.yaml": r"^    rev: v(.+)\n    hooks:\n      - id: ruff-check$",
    }
    found = {
        place: re.findall(pattern, (ROOT / place).read_text(), re.MULTILINE)
        for place, pattern in places.items()
    }
    assert len(set(map(tuple, found.values()))) == 1, found
    assert all(len(versions) == 1 for versions in found.values()), found
