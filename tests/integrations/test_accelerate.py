"""Training with Accelerate: a loader that is prepared stays as it is, and is in the checkpoint."""

from __future__ import annotations

import pytest

EXAMPLE = "train_accelerate.py"


@pytest.fixture(scope="module")
def alone(run):
    return run(EXAMPLE, "accelerate", ranks=2)


def test_it_trains_as_without_it(alone, plain):
    alone.check(plain)


@pytest.mark.parametrize(("stop", "before", "after"), [(10, 2, 1), (13, 1, 2)])
def test_losses_after_a_stop_are_the_same(run, alone, stop, before, after):
    out = f"accelerate-{stop}"
    run(EXAMPLE, out, ranks=before, steps=stop, every=1)
    run(EXAMPLE, out, ranks=after, workers=1).check(alone)


def test_losses_after_a_kill_are_the_same(run):
    last = run.killed(EXAMPLE, "accelerate-killed", after=10, ranks=2)
    log = run(EXAMPLE, "accelerate-killed", ranks=2, steps=last + 15)
    assert len(log.processes) == 2
    log.check(run(EXAMPLE, "accelerate-alone", ranks=2, steps=last + 15))
