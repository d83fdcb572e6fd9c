"""That bench_formats.py runs, with streamplug alone if the other libraries are not installed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def bench():
    pytest.importorskip("streamplug_text")
    pytest.importorskip("streamplug_webdataset")
    pytest.importorskip("streamplug_folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield importlib.import_module("bench_formats")


def test_all_formats_are_written_and_read(bench, monkeypatch, tmp_path):
    command = ["bench_formats.py", "--samples", "600", "--rounds", "1", "--json"]
    monkeypatch.setattr(sys, "argv", [*command, str(tmp_path / "figures.json")])
    monkeypatch.setattr(bench, "find_spec", lambda name: name.startswith("streamplug") or None)
    bench.main()
    found = json.loads((tmp_path / "figures.json").read_text())
    assert list(found) == [n for n, f in bench.FORMATS.items() if f.needs.startswith("streamplug")]
    for name, sides in found.items():
        written = set() if name.startswith(("plain", "folder")) else {"write"}
        written |= {"lists", "columns", "tables"} if name == "parquet" else set()
        assert set(sides) == {"samples", "batches", "access"} | written
        for each in sides.values():
            assert all(figures["us"] > 0 for figures in each.values())


def test_a_side_that_leaves_samples_out_ends_the_program(bench, tmp_path):
    short = bench.Side("samples", "streamplug", lambda *_: lambda: 100)
    sides = bench.FORMATS["csv"]._replace(sides=(short,))
    with pytest.raises(SystemExit, match="gave 100 of 600"):
        bench.measure(sides, bench.FORMATS["csv"].rows(600), 1, tmp_path)


def test_ours_are_compared_with_the_first_other(bench):
    ours = bench.Side("write", "streamplug", lambda *_: lambda: 0)
    theirs = bench.Side("write", "another", lambda *_: lambda: 0)
    found = bench.figures("write", {ours: [1.0, 2.0, 4.0], theirs: [10.0, 30.0, 8.0]})
    assert found == {
        "streamplug": {"us": 2.0, "times faster": 10.0},
        "another": {"us": 10.0, "times faster": 1.0},
    }
