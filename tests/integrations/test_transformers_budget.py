"""Batches of a budget in the Trainer of transformers: on other numbers of processes, and after a stop."""

from __future__ import annotations

import numpy as np
import pytest

EXAMPLE = "train_transformers_budget.py"


@pytest.mark.parametrize("pad_to", ["none", "batch"])
def test_optimizer_steps_are_the_same_on_other_numbers_of_processes(run, pad_to):
    options = {"data": run.place / "short", "pad-to": pad_to}
    alone = run(EXAMPLE, f"budget-{pad_to}", **options)
    losses = [losses[0] for losses in alone.losses.values()]
    assert losses[-1] < losses[0] - 0.5
    out = f"budget-{pad_to}-stopped"
    run(EXAMPLE, out, ranks=2, steps=10, every=1, **options)
    # The model's losses are in float32, where sums over two processes are rounded otherwise.
    run(EXAMPLE, out, workers=1, **options).check(alone, tolerance=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_padded_and_packed_batches_have_the_same_loss():
    import train_transformers_budget as example

    columns = {
        "tokens": [np.arange(length) for length in (5, 1, 12, 7)],
        "id": np.arange(4),
    }
    model = example.make_model().eval()
    losses = []
    for make_batch in (example.pad, example.pack):
        batch = make_batch(columns)
        del batch["id"]
        losses.append(model(**batch).loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
