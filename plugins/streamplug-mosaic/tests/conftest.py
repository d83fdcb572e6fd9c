from __future__ import annotations

import sys

import pytest
from streamplug_mosaic import install
from streamplug_mosaic.names import MODULES


@pytest.fixture
def streaming(monkeypatch):
    """The alias, for one test."""
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    finders = list(sys.meta_path)
    install()
    yield sys.modules["streaming"]
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "streaming":
            del sys.modules[name]


@pytest.fixture
def place(streaming, tmp_path):
    with streaming.MDSWriter(out=str(tmp_path / "set"), columns={"n": "int"}) as out:
        for n in range(20):
            out.write({"n": n})
    return str(tmp_path / "set")
