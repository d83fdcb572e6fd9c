"""Training with the Trainer of transformers: stops within an epoch and at its end, two processes."""

from __future__ import annotations

import pytest

EXAMPLE = "train_transformers.py"


@pytest.fixture(scope="module")
def alone(run):
    return run(EXAMPLE, "transformers")


@pytest.mark.parametrize("stop", [10, 13], ids=["within an epoch", "at its end"])
def test_losses_after_a_stop_are_the_same(run, alone, stop):
    out = f"transformers-{stop}"
    run(EXAMPLE, out, steps=stop, every=1)
    run(EXAMPLE, out, workers=1).check(alone)


def test_processes_share_a_global_batch(run, alone):
    run(EXAMPLE, "transformers-two", ranks=2, steps=17, every=1)
    # The model's losses are in float32, where sums over two processes are rounded otherwise.
    run(EXAMPLE, "transformers-two").check(alone, tolerance=1e-5)
