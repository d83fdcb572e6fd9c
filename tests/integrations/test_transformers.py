"""Training with the Trainer of transformers: stops within an epoch and at its end, two processes."""

from __future__ import annotations

import pytest

EXAMPLE = "train_transformers.py"


@pytest.fixture(scope="module")
def alone(run):
    return run(EXAMPLE, "transformers")


@pytest.mark.parametrize(("stop", "ranks"), [(10, 0), (13, 0), (17, 2)])
def test_losses_after_a_stop_are_the_same(run, alone, stop, ranks):
    out = f"transformers-{stop}"
    run(EXAMPLE, out, ranks=ranks, steps=stop, every=1)
    run(EXAMPLE, out, workers=1).check(alone)
