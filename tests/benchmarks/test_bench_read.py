"""That bench_read.py runs: its own sides on tiny data, and its command without the other libraries.

With STREAMPLUG_TEST_SOAK in the environment on all kinds of data and with more sides, else on some.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SAMPLES = 600
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
KINDS = ["jpeg", "tokens", "table", "small", "documents"]


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        names = ("read_data", "read_sides", "read_round", "read_writers")
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def data(modules, tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    assert set(KINDS) == set(modules["read_data"].READ)
    for kind in KINDS if SOAK else KINDS[:3]:
        modules["read_data"].build_mds(root / kind / "mds", kind, SAMPLES)
    return root


@pytest.mark.parametrize("kind", KINDS if SOAK else KINDS[:3])
def test_all_sides_read_two_whole_epochs(modules, data, kind):
    sides = [*modules["read_sides"].LIMITS, *modules["read_sides"].OURS]
    chosen = [s for s in sides if s.cores == 1 and (s.kinds is None or kind in s.kinds)]
    for side in chosen:
        found = modules["read_round"].measure(side, data / kind, SAMPLES, 60)
        whole = 20_000 if side.what == "access" else SAMPLES
        assert found["first"]["rows"] > 0.8 * min(whole, SAMPLES) - 512, side.who
        assert found["later"]["processor"] > 0, side.who
        assert not found["later"]["cut"]
        assert found["rss"] > 0
    assert {side.what for side in chosen} >= {"samples", "batches", "access"}


def test_sides_with_workers_read_and_count_their_processors(modules, data):
    sides = [side for side in modules["read_sides"].OURS if side.cores == 2]
    for side in sides:
        found = modules["read_round"].measure(side, data / "tokens", SAMPLES, 60)
        assert found["later"]["processor"] > 0, side.who
    assert {side.what for side in sides} == {"batches", "loader"}


def test_an_epoch_is_cut_unless_enough_of_it_was_read(modules):
    epoch = modules["read_round"].epoch
    assert epoch(range(1000), 1, 0.0, seconds=0.0, enough=1000)["cut"]
    whole = epoch(range(1000), 1, 0.0, seconds=0.0, enough=10)
    assert not whole["cut"]
    assert whole["rows"] == 999


def test_who_begins_anew_when_asked_for_an_iterator_is_asked_once(modules):
    class Own:
        def __iter__(self):
            self.left = 1000
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

    assert modules["read_round"].epoch(Own(), 1, 0.0, seconds=60, enough=0)["rows"] == 999


@pytest.mark.parametrize("kind", ["jpeg", "tokens", "small"])
def test_writers_write_what_they_say(modules, tmp_path, kind):
    for side in modules["read_writers"].WRITERS:
        if side.needs == ("streamplug",):
            found = modules["read_writers"].measure(side, tmp_path / "written", kind, 1000)
            assert found["later"]["rows"] == 1000


def test_rows_are_the_samples_of_the_blocks(modules):
    data = modules["read_data"]
    for kind in data.KINDS:
        rows = list(data.rows(kind, 1100))
        assert len(rows) == 1100
        assert list(rows[0]) == list(data.KINDS[kind][1])


def test_the_command_measures_and_names_who_is_left_out(tmp_path):
    out = tmp_path / "read.json"
    command = [sys.executable, HERE / "bench_read.py", "--size", "0.01", "--rounds", "1"]
    # Each side has a process of its own.
    only = "batches" if SOAK else "batches(256)"
    command += ["--kinds", "small", "--only", only, "--seconds", "1", "--json", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    found = json.loads(out.read_text())
    assert {one["who"] for one in found["figures"]} >= {"streamplug, batches(256)"}
    assert not found["left out"]
    assert "small, batches" in done.stdout
