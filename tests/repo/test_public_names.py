from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import streamplug
from streamplug import dataset, interfaces, plugin
from streamplug.plugin import discovery
from streamplug.plugin.catalog import load_catalog


def test_the_names_are_those_that_have_a_home():
    assert streamplug.__all__ == sorted(streamplug._HOME)


@pytest.mark.parametrize("name", streamplug.__all__)
def test_every_name_resolves(name):
    if name == "StreamingDataLoader":
        pytest.importorskip("torch")
    value = getattr(streamplug, name)
    assert value.__name__ == name
    assert name in dir(streamplug)
    assert value.__doc__


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match=r"module 'streamplug' has no attribute 'nothing'"):
        _ = streamplug.nothing
    with pytest.raises(AttributeError, match=r"'streamplug\.plugin' has no attribute 'nothing'"):
        _ = plugin.nothing


def test_without_torch_there_is_the_data_set_all_the_same(monkeypatch):
    monkeypatch.setattr(streamplug, "find_spec", lambda name: None)
    monkeypatch.delitem(vars(streamplug), "StreamingDataset", raising=False)
    found = streamplug.StreamingDataset
    del streamplug.StreamingDataset  # by no monkeypatch, which would put this one back
    assert found is dataset.StreamingDataset
    monkeypatch.delitem(vars(streamplug), "StreamingDataLoader", raising=False)
    with pytest.raises(
        ImportError, match=r"torch, which is not installed.*StreamingDataset.batches"
    ):
        _ = streamplug.StreamingDataLoader


ADDED = load_catalog()["name"]


@pytest.mark.parametrize("name", ADDED)
def test_installed_distributions_add_names(name):
    pytest.importorskip(ADDED[name].replace("-", "_"))
    assert getattr(streamplug, name).__name__ == name
    assert name in dir(streamplug)


@pytest.mark.parametrize("name", ADDED)
def test_names_of_other_distributions_say_which_to_install(monkeypatch, name):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    monkeypatch.delitem(vars(streamplug), name, raising=False)
    with pytest.raises(
        ImportError, match=f"^{name} is in {ADDED[name]}, which is not installed: pip"
    ):
        getattr(streamplug, name)


def test_names_of_disabled_distributions_say_so(monkeypatch):
    name = "merge_index"
    pytest.importorskip("streamplug_tools")
    monkeypatch.setenv("STREAMPLUG_DISABLE_PLUGINS", ADDED[name])
    monkeypatch.delitem(vars(streamplug), name, raising=False)
    with pytest.raises(ImportError, match="is disabled: in STREAMPLUG_DISABLE_PLUGINS"):
        getattr(streamplug, name)


def test_a_name_of_two_distributions_is_refused(monkeypatch):
    point = EntryPoint("twice", "json:dumps", discovery.NAMES_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [point, point])
    with pytest.raises(ImportError, match=r"^twice is in .* and .*: uninstall one"):
        _ = streamplug.twice


def test_a_star_import_gives_the_names():
    pytest.importorskip("torch")
    found: dict[str, object] = {}
    exec("from streamplug import *", found)
    assert set(streamplug.__all__) <= set(found)


def test_a_star_import_without_torch_gives_the_others():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from streamplug import *\n"
        "import streamplug\n"
        "assert 'StreamingDataLoader' not in streamplug.__all__ and len(streamplug.__all__) > 20\n"
        "print(StreamingDataset.__module__)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("streamplug.dataset\n", "")


@pytest.mark.parametrize("module", [interfaces, plugin])
def test_the_names_of_packages_resolve(module):
    assert all(hasattr(module, name) for name in module.__all__)
