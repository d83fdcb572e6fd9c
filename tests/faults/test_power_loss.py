"""Whatever a loss of power leaves of what was being written: all of it, what was there before, or nothing.

With STREAMPLUG_TEST_FAULTS in the environment, 10,000 random reorderings are tried for each way to write,
and all prefixes; else some of them.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamplug.cache import quota
from streamplug.errors import NotFound, StreamplugError
from tests.faults.power_loss import Recorder, Sync, lay_out, prefixes, reorderings
from tests.faults.ways import CACHES, WAYS

WHOLE = bool(os.environ.get("STREAMPLUG_TEST_FAULTS"))
NUMBER = 10_000 if WHOLE else 6
FAILURES = (AssertionError, StreamplugError, OSError)


def check(name: str, disk: Path, *, ended: bool) -> str:
    """Check what may be read, and that the same call leaves it whole; return what it was."""
    way = WAYS[name]
    try:
        found = way.read(disk)
    except NotFound as error:
        if "shard." in str(error) or "incomplete" in str(error):
            raise  # there is an index, or a manifest, without its files
        found = None
    if name in CACHES or ended:
        assert found == way.new
    if found == way.new:
        return "whole"
    if name != "uploads":
        assert found is None or found in way.old
    way.act(disk)
    assert way.read(disk) == way.new
    return "absent" if found is None else "before"


def states(recorder: Recorder) -> Iterator[tuple[bool, dict[str, bytes | None]]]:
    every = list(prefixes(recorder))
    yield from every if WHOLE else [*random.Random(1).sample(every, NUMBER), *every[-4:]]
    yield from reorderings(recorder, NUMBER, seed=7)


def record(name: str, disk: Path) -> Recorder:
    """Return what a way of writing does."""
    disk.mkdir()
    try:
        WAYS[name].prepare(disk)
        with Recorder(disk) as recorder:
            WAYS[name].act(disk)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    return recorder


@pytest.mark.timeout(7200 if WHOLE else 60)
@pytest.mark.parametrize("name", WAYS)
def test_what_a_loss_of_power_leaves(tmp_path, monkeypatch, caplog, name, figures):
    disk = tmp_path / "disk"
    recorder = record(name, disk)
    assert WAYS[name].read(disk) == WAYS[name].new
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(quota, "boot_id", lambda: "another")
    seen: set[int] = set()
    outcomes: Counter[str] = Counter()
    tried = 0
    for ended, state in states(recorder):
        tried += 1
        key = hash((ended, tuple(sorted(state.items()))))
        if key in seen:
            continue
        seen.add(key)
        shutil.rmtree(disk)
        lay_out(state, disk)
        try:
            outcomes[check(name, disk, ended=ended)] += 1
        except FAILURES as error:
            listing = {path: None if data is None else data[:200] for path, data in state.items()}
            pytest.fail(f"{type(error).__name__}: {error}\nended: {ended}\nstate: {listing}")
    if figures is not None:
        steps = len(recorder.log) - recorder.num_before
        losses = figures.setdefault("power losses", {})
        losses[name] = {"steps": steps, "tried": tried, "states": len(seen), **outcomes}


@pytest.mark.parametrize("of_folders", [False, True])
def test_a_missing_sync_would_be_found(tmp_path, caplog, of_folders):
    caplog.set_level("CRITICAL")
    disk = tmp_path / "disk"
    recorder = record("append", disk)
    recorder.log = [
        event
        for event in recorder.log
        if not isinstance(event, Sync) or (event.node.entries is not None) is not of_folders
    ]
    found = 0
    for ended, state in reversed(list(prefixes(recorder))):
        shutil.rmtree(disk)
        lay_out(state, disk)
        try:
            check("append", disk, ended=ended)
        except FAILURES:
            found += 1
            break
    assert found
