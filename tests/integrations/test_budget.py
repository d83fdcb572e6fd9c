"""Training with four ways to make batches: a budget leaves no padding, and no rank waits for another."""

from __future__ import annotations

import json

import pytest

LIMIT, STEPS = 1024, 4


@pytest.fixture(scope="module")
def figures(run):
    run(
        "train_budget.py", "budget.json", ranks=4, data=run.place / "long", steps=STEPS, limit=LIMIT
    )
    (found,) = json.loads((run.place / "budget.json").read_text())
    assert (found["ranks"], found["steps"]) == (4, STEPS)
    return found["ways"]


def test_a_budget_limits_batches_and_balances_ranks(figures):
    for way in ("budget, padded", "budget, packed"):
        fixed = figures[way.replace("budget", "batch_size")]
        assert figures[way]["largest_batch"] <= LIMIT < fixed["largest_batch"]
        assert figures[way]["imbalance"] < 1.02 < 1.1 < fixed["imbalance"]
        assert figures[way]["tokens_per_step"] > 0.8 * fixed["tokens_per_step"]
    assert figures["budget, packed"]["padding"] == 0
    assert (
        figures["budget, padded"]["padding"] < 0.05 < 0.4 < figures["batch_size, padded"]["padding"]
    )


def test_padded_and_packed_rows_have_the_same_losses(figures):
    padded, packed = (figures[f"batch_size, {kind}"] for kind in ("padded", "packed"))
    for loss in ("first_loss", "last_loss"):
        assert padded[loss] == pytest.approx(packed[loss], rel=1e-4)
    assert all(way["last_loss"] < way["first_loss"] for way in figures.values())
