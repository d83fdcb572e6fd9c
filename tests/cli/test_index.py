from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter
from streamplug.cli import main
from streamplug.index import COMPANION_NAME


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(columns={"id": "int"}, out=tmp_path / "set") as writer:
        writer.write({"id": 1})
    return tmp_path / "set"


def run(*arguments: str):
    return CliRunner().invoke(main, ["index", *arguments])


def test_a_companion_is_made_and_checked(folder):
    made = run("build", str(folder))
    assert (made.exit_code, (folder / COMPANION_NAME).exists()) == (0, True)
    assert f"{folder}/{COMPANION_NAME}: written; 1 shards, 1 samples, " in made.stdout
    checked = run("check", str(folder))
    assert checked.exit_code == 0
    assert "whole, and that of its index.json" in checked.stdout


def test_the_result_can_be_had_as_json(folder):
    made = run("build", str(folder), "--json")
    assert json.loads(made.stdout)["shards"] == 1
    assert made.stdout == run("check", str(folder), "--json").stdout


def test_damage_is_told_in_a_line(folder):
    run("build", str(folder))
    path = folder / COMPANION_NAME
    path.write_bytes(path.read_bytes()[:-1])
    checked = run("check", str(folder))
    assert checked.exit_code == 1
    assert checked.stderr.strip().splitlines()[-1].startswith(f"error: {path} is damaged")


def test_another_action_is_refused(folder):
    assert run("mend", str(folder)).exit_code == 2
