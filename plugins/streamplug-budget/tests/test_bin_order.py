"""Round robin over sequences of different lengths."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from streamplug_budget.bin_order import BinOrder


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_sequences_take_turns_until_they_end(counts):
    order = BinOrder(counts)
    expected = [
        (sequence, number)
        for number in range(max(counts))
        for sequence, count in enumerate(counts)
        if number < count
    ]
    sequences, numbers = order.locate(np.arange(order.size))
    assert list(zip(sequences.tolist(), numbers.tolist())) == expected
    assert [order.position(*place) for place in expected] == list(range(order.size))
    for position in range(order.size + 1):
        before = [sequence for sequence, _ in expected[:position]]
        assert order.counts_before(position).tolist() == [
            before.count(sequence) for sequence in range(len(counts))
        ]
