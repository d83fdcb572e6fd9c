"""A module of a package is imported when the first of its names is used."""

from __future__ import annotations

import sys

import pytest


def test_names_are_imported_on_first_use(tmp_path, monkeypatch):
    package = tmp_path / "lazy_example"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from streamplug.plugin import lazy_names\n"
        "__getattr__, __all__ = lazy_names(__name__, {'numbers': 'two one', 'words': 'three'})\n"
    )
    (package / "numbers.py").write_text("one, two = 1, 2\n")
    (package / "words.py").write_text("raise ImportError('words need a library')\n")
    monkeypatch.syspath_prepend(tmp_path)

    import lazy_example

    assert lazy_example.__all__ == ["one", "three", "two"]
    assert "lazy_example.numbers" not in sys.modules
    assert (lazy_example.one, lazy_example.two) == (1, 2)
    with pytest.raises(ImportError, match="words need a library"):
        _ = lazy_example.three
    with pytest.raises(AttributeError, match="module 'lazy_example' has no attribute 'four'"):
        _ = lazy_example.four
