"""The batching method as a plugin."""

from __future__ import annotations

from typing import ClassVar

import pytest
from streamplug_budget import BatchBudget
from streamplug_testing import BatchingTests


class TestBudget(BatchingTests):
    name = "budget"
    options: ClassVar = {"batch_budget": {"limit": 100, "column": "tokens"}}


class TestPaddedBudget(BatchingTests):
    name = "budget"
    options: ClassVar = {
        "batch_budget": BatchBudget(limit=2000, column="tokens", pad_to="batch", quadratic=0.1),
        "batch_size": 9,
    }


def test_only_what_is_named_is_exported():
    import streamplug_budget

    with pytest.raises(AttributeError, match="no attribute 'BatchBuget'"):
        _ = streamplug_budget.BatchBuget
