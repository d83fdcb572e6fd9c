"""That bench_columns.py runs, and that ranges transfer the columns alone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def test_ranges_transfer_a_share_of_the_bytes(monkeypatch, capsys):
    pytest.importorskip("streamplug_parquet")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    bench = importlib.import_module("bench_columns")
    monkeypatch.setattr(sys, "argv", ["bench_columns.py", "--rounds", "1", "--rows", "40000"])
    bench.main()
    whole, by_range = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (whole[0], by_range[0]) == ("shard", "range")
    assert 3 / 50 < float(by_range[-4]) < 0.1
