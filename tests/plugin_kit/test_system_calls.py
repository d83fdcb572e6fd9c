from __future__ import annotations

import sys

import pytest

from streamplug.plugin_kit.system_calls import system_call

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked")


@on_linux
def test_a_function_is_found_and_takes_its_types():
    assert system_call.__wrapped__("abs", "c_int")(-3) == 3


@on_linux
def test_a_function_that_does_not_exist_is_none():
    assert system_call.__wrapped__("no_such_function", "c_int") is None


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_a_library_that_cannot_be_called_has_none(monkeypatch, error):
    def fail(_: None) -> None:
        raise error("no")

    monkeypatch.setattr("ctypes.CDLL", fail)
    assert system_call.__wrapped__("abs", "c_int") is None


def test_python_without_ctypes_has_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert system_call.__wrapped__("abs", "c_int") is None


def test_other_systems_have_none(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system_call.__wrapped__("abs", "c_int") is None
