"""Bins of limited cost: none exceeds the limit, none is empty, and their number is known beforehand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_budget.packing import count_bins, group_padded, pack, split_bins

LIMITS = st.integers(1, 300) | st.sampled_from([4096, 1 << 21])


@st.composite
def windows(draw):
    limit = draw(LIMITS)
    costs = st.integers(1, limit) | st.sampled_from([1, limit, limit // 2 + 1, max(limit // 3, 1)])
    few = draw(st.lists(costs, min_size=1, max_size=40))
    return np.array(few * draw(st.integers(1, 8)), np.int64), limit


@given(windows())
def test_no_bin_exceeds_the_limit_or_is_empty(window):
    costs, limit = window
    chosen, bins = pack(costs, limit)
    loads = np.bincount(chosen, costs, bins)
    assert len(loads) == bins == count_bins(costs, limit)
    assert loads.max() <= limit
    assert loads.min() > 0


@given(windows(), st.none() | st.integers(1, 5))
def test_padded_bins_hold_similar_samples(window, max_samples):
    costs, limit = window
    chosen, bins = group_padded(costs, limit, max_samples)
    spans = []
    for number in range(bins):
        inside = costs[chosen == number]
        assert 0 < len(inside) * inside.max() <= limit
        assert max_samples is None or len(inside) <= max_samples
        spans.append((inside.min(), inside.max()))
    for (low, _), (_, high) in pairwise(spans):
        assert high <= low


@given(windows(), st.data())
def test_bins_are_split_into_more(window, data):
    chosen, bins = pack(*window)
    wanted = data.draw(st.integers(bins, len(chosen)))
    split = split_bins(chosen, bins, wanted)
    assert len(np.unique(split)) == split.max() + 1 == wanted
    parts = {(int(part), int(whole)) for part, whole in zip(split, chosen)}
    assert len(parts) == wanted  # each part is of one bin
    counts = np.bincount(split)
    assert counts.max() <= max(np.bincount(chosen).max(), 1)
    if wanted >= 2 * bins:
        assert counts.max() <= -(-np.bincount(chosen).max() // 2)


@pytest.mark.parametrize(
    ("limit", "fill", "imbalance"),
    [(8192, 0.97, 1.03), (16384, 0.98, 1.02), (65536, 0.99, 1.005), (1 << 18, 0.98, 1.005)],
)
def test_bins_of_lognormal_samples_are_full_and_equal(limit, fill, imbalance):
    lengths = np.exp(np.random.default_rng(3).normal(6.4, 1, 16384)).astype(np.int64)
    costs = np.clip(lengths, 1, limit)
    chosen, bins = pack(costs, limit)
    loads = np.bincount(chosen, costs, bins)
    assert loads.mean() >= fill * limit
    assert loads.max() <= imbalance * loads.mean()


def test_equal_samples_fill_bins_completely():
    costs = np.full(4096, 1024, np.int64)
    assert count_bins(costs, 8192) == 512
    assert count_bins(costs, 8191) == 586  # seven in each
