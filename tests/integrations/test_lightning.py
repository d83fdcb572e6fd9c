"""Training with PyTorch Lightning: stops after each step of an epoch, kills, several processes."""

from __future__ import annotations

import pytest

EXAMPLE = "train_lightning.py"


@pytest.fixture(scope="module")
def alone(run):
    return run(EXAMPLE, "lightning")


def test_it_trains_as_without_it(alone, plain):
    alone.check(plain)


@pytest.mark.parametrize("stop", [10, 12, 13, 26])
def test_losses_after_a_stop_are_the_same(run, alone, stop):
    out = f"lightning-{stop}"
    run(EXAMPLE, out, steps=stop, every=1)
    run(EXAMPLE, out, workers=stop % 2).check(alone)


def test_losses_after_a_kill_are_the_same(run):
    last = run.killed(EXAMPLE, "lightning-killed", after=10, every=3)
    log = run(EXAMPLE, "lightning-killed", steps=last + 15)
    assert len(log.processes) == 2
    log.check(run(EXAMPLE, "lightning-alone", steps=last + 15))


def test_processes_share_a_global_batch(run, alone):
    run(EXAMPLE, "lightning-two", ranks=2, steps=10, every=1)
    run(EXAMPLE, "lightning-two").check(alone)
