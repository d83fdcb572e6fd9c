from __future__ import annotations

import os

import pytest
from streamplug_testing.isolation import isolated_plugins

from streamplug.errors import UnknownNameError
from streamplug.interfaces import Encoding
from streamplug.plugin import Provider, hookimpl, inventory, register, resolve
from streamplug.plugin.registry import unregister

TEXT = "streamplug.builtin.encodings.plain:Str"


class Mine(Encoding):
    def encode(self, value):
        return b""

    def decode(self, data):
        return None


class Plugin:
    __name__ = "my_plugin.hooks"

    @hookimpl
    def streamplug_plugins(self):
        return [Provider("encoding", "of-plugin", TEXT)]


def test_nothing_but_what_is_given_exists():
    with isolated_plugins():
        assert inventory().entries == ()
    with isolated_plugins(Plugin(), Provider("encoding", "given", TEXT)):
        assert [(f.distribution, f.kind, f.name, f.status) for f in inventory().entries] == [
            ("my-plugin", "encoding", "of-plugin", "ok"),
            ("test", "encoding", "given", "ok"),
        ]
        assert resolve("encoding", "given").__name__ == "Str"


def test_what_was_there_before_is_there_again():
    register("encoding", "mine", Mine)
    try:
        before = inventory()
        with isolated_plugins(Provider("encoding", "mine", "no_such_module:X")):
            with pytest.raises(ImportError, match="no_such_module"):
                resolve("encoding", "mine")
            register("encoding", "inside", Mine)
        assert resolve("encoding", "mine") is Mine
        assert inventory() == before
        with pytest.raises(UnknownNameError):
            resolve("encoding", "inside")
    finally:
        unregister("encoding", "mine")


def test_an_error_inside_ends_the_isolation():
    before = inventory()
    with pytest.raises(ZeroDivisionError), isolated_plugins():
        raise ZeroDivisionError
    assert inventory() == before


def test_the_environment_does_not_count(monkeypatch):
    monkeypatch.setenv("STREAMPLUG_PLUGINS", "")
    monkeypatch.setenv("STREAMPLUG_DISABLE_PLUGINS", "my-plugin")
    with isolated_plugins(Plugin()):
        assert [f.status for f in inventory().entries] == ["ok"]
    assert os.environ["STREAMPLUG_PLUGINS"] == ""
