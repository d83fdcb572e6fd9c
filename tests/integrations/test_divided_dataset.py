"""A data set, rather than a loader, in Accelerate and transformers: read whole, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("epoch_of_dataset.py"))
SAMPLES = 300
WAYS = ("shard", "dispatch", "shard with workers", "dispatch with workers", "train", "evaluate")


@pytest.mark.parametrize(("ranks", "world"), [(2, "one"), (1, "ranks")])
def test_what_is_divided_once_is_read_whole(run, ranks, world):
    log = run(PROGRAM, f"divided-{ranks}", ranks=ranks, world=world)
    assert list(log.samples) == [*range(1, len(WAYS) + 1)]
    for (samples,) in log.samples.values():
        assert set(samples) == set(range(SAMPLES))


def test_a_second_division_is_refused(run):
    log = run(PROGRAM, "divided-twice", ranks=2, world="ranks")
    assert not log.samples
    said = (run.place / "divided-twice.txt").read_text()
    for how in WAYS:
        assert f"{how}: Accelerate divides a data set that is already divided among 2 ranks" in said
    assert "world=World()" in said
