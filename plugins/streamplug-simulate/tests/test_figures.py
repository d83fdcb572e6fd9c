"""The figures of the documentation are those that were measured."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_is_made_of_the_measured_figures(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    row = importlib.import_module("times").row
    figures = json.loads((DOCS / "plots" / "simulate.json").read_text())
    text = (DOCS / "concepts" / "simulate.md").read_text()
    assert len(figures) >= 10
    for each in figures:
        assert row(each) in text


@pytest.mark.parametrize("key", ["megabytes", "first", "seconds"])
def test_what_is_simulated_is_what_was_measured_within_a_fifth(key):
    for each in json.loads((DOCS / "plots" / "simulate.json").read_text()):
        assert each["simulated"][key] == pytest.approx(each["real"][key], rel=0.2), each["run"]
