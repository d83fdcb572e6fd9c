"""Each fault that a distribution may have is caught by the conformance tests."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from streamplug_testing.plugin import PluginTests

from streamplug.plugin.discovery import PluginEntry


class Suite(PluginTests):
    distribution = "acme"


@pytest.mark.parametrize(
    "requires",
    [
        ["streamplug>=0.1,<0.2"],
        ["numpy", "streamplug<0.2,>=0.1"],
        ["streamplug~=1.2"],
        ["streamplug (<0.2,>=0.1)"],
    ],
)
def test_a_bounded_pin_is_good(requires):
    Suite().test_pins_streamplug(SimpleNamespace(requires=requires))


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        (None, "acme does not depend on streamplug"),
        (["streamplug-other>=0.1,<0.2"], "acme does not depend on streamplug"),
        (["streamplug"], "give the lowest and the first unsupported version"),
        (["streamplug>=0.1"], "streamplug>=0.1: give the lowest"),
        (["streamplug<0.2"], "streamplug<0.2: give the lowest"),
    ],
)
def test_a_missing_or_open_pin_is_caught(requires, message):
    with pytest.raises(AssertionError, match=message):
        Suite().test_pins_streamplug(SimpleNamespace(requires=requires))


def test_a_distribution_without_entry_points_is_caught():
    with pytest.raises(AssertionError, match="acme has no entry point in the group 'streamplug'"):
        Suite().test_has_entry_points([])


@pytest.mark.parametrize(
    ("status", "good"),
    [
        ("ok", True),
        ("ambiguous", True),
        ("broken", False),
        ("rejected", False),
        ("disabled", False),
    ],
)
def test_what_is_wrong_with_a_name_is_caught(status, good):
    fine = PluginEntry("encoding", "fine", "acme", "1", "m:X")
    found = [fine, PluginEntry("encoding", "x", "acme", "1", "m:X", status, "for a reason")]
    if good:
        Suite().test_provides_names_and_nothing_is_wrong(found)
        return
    with pytest.raises(AssertionError, match=f"encoding x: {status}: for a reason"):
        Suite().test_provides_names_and_nothing_is_wrong(found)


def test_providing_nothing_is_caught():
    with pytest.raises(AssertionError, match="acme provides no name"):
        Suite().test_provides_names_and_nothing_is_wrong([])


def test_a_target_that_is_not_there_is_caught():
    found = [
        PluginEntry("encoding", "good", "acme", "1", "streamplug.builtin.encodings.plain:Str"),
        PluginEntry("encoding", "x", "acme", "1", "no_such_module:X"),
        PluginEntry("format", "y", "acme", "1", "streamplug.builtin.encodings.plain:Str"),
    ]
    with pytest.raises(AssertionError) as caught:
        Suite().test_every_target_is_what_it_must_be(found)
    text = str(caught.value)
    assert "No module named 'no_such_module'" in text
    assert "expected a subclass of Format" in text
    assert "'good'" not in text


@pytest.mark.parametrize(
    ("code", "foreign"), [("import json", ""), ("import json, numpy", "numpy")]
)
def test_a_heavy_module_of_hooks_is_caught(tmp_path, monkeypatch, code, foreign):
    (tmp_path / "acme_hooks.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    points = [EntryPoint("acme", "acme_hooks", "streamplug")]
    if not foreign:
        Suite().test_looking_for_names_imports_nothing_foreign(points)
        return
    with pytest.raises(AssertionError, match=f"acme_hooks imports .*{foreign}: every user"):
        Suite().test_looking_for_names_imports_nothing_foreign(points)
