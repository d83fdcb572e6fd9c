from __future__ import annotations

import sys

import pytest

from streamplug import compat


@pytest.fixture
def streaming(monkeypatch):
    """The alias, for one test."""
    for name in compat.MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    finders = list(sys.meta_path)
    compat.install()
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
