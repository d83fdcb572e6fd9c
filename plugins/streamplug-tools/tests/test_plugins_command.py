from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
from click.testing import CliRunner
from streamplug_testing.isolation import isolated_plugins

from streamplug.cli import main
from streamplug.plugin import Provider, hookimpl
from streamplug.plugin.kinds import KINDS


def run(*arguments):
    return CliRunner().invoke(main, ["plugins", *arguments])


def listed(*arguments):
    return {(f["kind"], f["name"]): f for f in json.loads(run("--json", *arguments).stdout)}


class Acme:
    __name__ = "acme"

    @hookimpl
    def streamplug_plugins(self):
        return [
            Provider("encoding", "list[x]", "acme_code:X"),
            Provider("encoding", "str", "acme_code:X"),
        ]


class Broken:
    __name__ = "broken"

    @hookimpl
    def streamplug_plugins(self):
        raise RuntimeError("no plugins today")


@pytest.fixture
def acme():
    with isolated_plugins(Acme(), Broken()):
        yield


def test_lists_built_ins():
    with isolated_plugins():
        found = listed()
        shown = run().stdout
    assert {key for key in found if key[0] == "compression"} == {
        ("compression", name) for name in KINDS["compression"].builtin
    }
    assert found["format", "mds"]["distribution"] == "streamplug"
    assert found["format", "mds"]["status"] == "installed"
    assert shown.splitlines()[0].split() == ["kind", "name", "distribution", "version", "status"]
    assert any(line.split()[:3] == ["shuffle", "none", "streamplug"] for line in shown.splitlines())


def test_lists_what_plugins_provide_without_importing_it(acme):
    found = listed()
    assert found["encoding", "list[x]"] == {
        "kind": "encoding",
        "name": "list[x]",
        "distribution": "acme",
        "version": "0",
        "target": "acme_code:X",
        "status": "installed",
        "reason": "",
        "manifest": "",
    }
    assert found["", ""]["reason"] == "RuntimeError: no plugins today"
    assert "acme_code" not in sys.modules
    assert "list[x]" in run().stdout
    assert "broken: RuntimeError: no plugins today" in run().stdout
    assert "rejected: 'str' is a built-in encoding" in run().stdout


def test_lists_are_sorted(acme):
    rows = [(f["kind"], f["name"]) for f in json.loads(run("--json").stdout)]
    assert rows == sorted(rows, key=lambda row: ([*KINDS, ""].index(row[0]), row[1]))


def test_one_kind_only(acme):
    assert {kind for kind, _ in listed("--kind", "storage")} == {"storage", ""}
    assert {kind for kind, _ in listed("--kind", "format")} == {"format", ""}
    assert run("--kind", "nonsense").exit_code == 2


def test_a_plugin_broken_as_a_whole_is_listed_with_every_kind(monkeypatch):
    def bad(self):
        raise ImportError("cannot")

    with isolated_plugins(ModuleType("whole")):
        monkeypatch.setattr("streamplug_testing.isolation.Point.load", bad)
        assert listed("--kind", "format")["", ""]["reason"] == "ImportError: cannot"


def test_check_names_what_is_broken_and_fails(acme):
    result = run("--check", "--json")
    assert result.exit_code == 1
    found = {(f["kind"], f["name"]): f for f in json.loads(result.stdout)}
    assert found["encoding", "list[x]"]["status"] == "broken"
    assert "No module named 'acme_code'" in found["encoding", "list[x]"]["reason"]
    assert found["encoding", "int"]["status"] == "ok"
    with isolated_plugins(Acme()):
        assert run("--check", "--kind", "format").exit_code == 0
    assert run().exit_code == 0


def test_ok_is_said_only_of_what_was_tried(acme):
    # Its class cannot be imported, which nobody knows yet.
    assert listed()["encoding", "list[x]"]["status"] == "installed"
    assert not any(line.split()[-1] == "ok" for line in run().stdout.splitlines())
    assert any(line.split()[-1] == "ok" for line in run("--check").stdout.splitlines())


def test_every_built_in_can_be_resolved():
    with isolated_plugins():
        result = run("--check", "--json")
    broken = [f for f in json.loads(result.stdout) if f["status"] != "ok"]
    assert (broken, result.exit_code) == ([], 0)


def test_check_fails_for_names_that_cannot_be_used():
    taken = Provider("encoding", "str", "json:JSONEncoder")
    with isolated_plugins(taken):
        result = run("--check", "--kind", "encoding")
        assert result.exit_code == 1
        assert "rejected: 'str' is a built-in encoding" in result.stdout

    def module(name):
        made = ModuleType(name)
        made.streamplug_plugins = hookimpl(
            lambda: [Provider("compression", "twice", "streamplug.builtin.compressions.gzip:Gzip")]
        )
        return made

    with isolated_plugins(module("one"), module("two")):
        result = run("--check", "--kind", "compression", "--json")
        assert result.exit_code == 1
        found = {f["name"]: f["status"] for f in json.loads(result.stdout)}
        assert found["twice"] == "ambiguous"
        assert run("--kind", "compression").exit_code == 0
