"""That bench_landing.py runs, on tiny data and with streamplug alone."""

from __future__ import annotations

import importlib
import json
import sys
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("bench_landing")


def test_the_program_measures_and_names_who_is_left_out(bench, monkeypatch, tmp_path, capsys):
    row = bench.ROWS["small"]
    ours = next(side for side in row.sides if side.library == "streamplug")
    # Each way has a process of its own.
    ours = ours._replace(ways={"no workers": ours.ways["no workers"]})
    absent = bench.Side("absent", {}, needs=("no_such_package",))
    monkeypatch.setitem(bench.ROWS, "small", row._replace(sides=(ours, absent)))
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    command = ["bench_landing.py", "--rows", "small", "--seconds", "0.1", "--size", "0.001"]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(tmp_path / "landing.json")])
    bench.main()
    found = json.loads((tmp_path / "landing.json").read_text())
    (figures,) = found["rows"]["small"]["sides"].values()
    assert figures["way"] in ("no workers, first epoch", "no workers, later epochs")
    assert all(figures[name] > 0 for name in ("rate", "first_batch_ms", "memory_mb"))
    assert found["left out"] == {"small, absent": "not installed: no_such_package"}
    assert found["machine"]["versions"]["streamplug"]
    assert "left out: absent" in capsys.readouterr().out


def test_crops_are_batches_of_pixels(bench, monkeypatch, tmp_path):
    pytest.importorskip("streamplug_image")
    sides = importlib.import_module("crop_sides")
    monkeypatch.setattr(importlib.import_module("photographs"), "DISTINCT", 2)
    importlib.import_module("read_data").build_mds(tmp_path / "mds", "photos", 128)
    epochs = sides.ours(tmp_path / "mds", 128, workers=0, num_threads=2)
    for _ in range(2):
        items, size = next(epochs)
        batches = [batch["image"] for batch in items]
        assert size == 64
        assert [tuple(batch.shape) for batch in batches] == [(64, 224, 224, 3)] * 2
        assert all(batch.numpy().dtype == np.uint8 for batch in batches)


def test_epochs_from_a_server_have_caches_of_their_own(bench):
    caches = []

    def open_batches(cache):
        caches.append(cache)
        assert not list(Path(cache).iterdir())
        (Path(cache) / "shard").touch()
        return ["batch"]

    epochs = importlib.import_module("landing_sides").cold_epochs(open_batches, 4)
    for _ in range(2):
        items, size = next(epochs)
        assert (list(items), size) == (["batch"], 4)
    assert caches[0] != caches[1]
    assert not Path(caches[0]).exists()


def test_batches_of_two_workers_are_whole(bench):
    for row in bench.ROWS.values():
        assert row.samples % (2 * row.batch) == 0
        assert bench.samples_of(row, 1.0) == row.samples
        assert bench.samples_of(row, 0.0) == 4 * row.batch


def test_an_epoch_of_one_batch_is_an_error(bench):
    with pytest.raises(ValueError, match="fewer than two batches"):
        bench.measure_epochs(repeat((["batch"], 64)), 60.0)
