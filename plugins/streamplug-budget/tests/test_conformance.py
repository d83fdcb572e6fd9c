"""The order as a plugin."""

from __future__ import annotations

from typing import ClassVar

import pytest
from streamplug_budget import BatchBudget
from streamplug_testing import OrderTests


class TestBudget(OrderTests):
    name = "budget"
    counts_batches = True
    options: ClassVar = {"batch_budget": {"limit": 100, "column": "tokens"}}


class TestPaddedBudget(OrderTests):
    name = "budget"
    counts_batches = True
    options: ClassVar = {
        "batch_budget": BatchBudget(
            limit=2000, column="tokens", pad_to="batch", quadratic=0.1, micro_batches=8
        ),
        "batch_size": 9,
    }


def test_only_what_is_named_is_exported():
    import streamplug_budget

    with pytest.raises(AttributeError, match="no attribute 'BatchBuget'"):
        _ = streamplug_budget.BatchBuget
