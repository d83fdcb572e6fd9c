"""Weights, and what they take of each stream and shard."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.plan import AllSamples, Weight, WeightedMixture, choose_per_stream
from streamplug.plan.selection import ShardSampler, spread_over_shards
from tests.plan.plans import Plan

shards = st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)


@settings(deadline=None)
@given(shards, st.integers(0, 500), st.integers(1, 40), st.integers(0, 99))
def test_what_is_chosen_adds_up_and_no_shard_gives_a_sample_twice(sizes, choose, run, seed):
    sizes = np.array(sizes)
    chosen = spread_over_shards(sizes, choose, run, (seed, 1, 2))
    passes = choose // sizes.sum()
    assert chosen.sum() == choose
    assert (chosen >= passes * sizes).all()
    assert (chosen <= (passes + 1) * sizes).all()


def test_a_part_is_spread_over_the_shards():
    chosen = spread_over_shards(np.full(1000, 100), 25_000, 1, (1, 2, 3))
    assert set(chosen.tolist()) == {25}
    runs = spread_over_shards(np.full(1000, 100), 25_000, 50, (1, 2, 3))
    assert set(runs.tolist()) == {0, 50}


def test_trillions_are_spread_without_an_array_of_them():
    sizes = np.full(1000, 10**9, np.int64)
    assert spread_over_shards(sizes, 10**11 + 7, 1, (1, 0, 0)).sum() == 10**11 + 7


@settings(deadline=None)
@given(
    st.lists(shards, min_size=1, max_size=4),
    st.data(),
    st.sampled_from(["balanced", "fixed"]),
)
def test_a_selection_takes_what_was_chosen_and_is_found_again(streams, data, method):
    sizes = [sum(stream) for stream in streams]
    choose = tuple(data.draw(st.integers(0, 3 * size)) for size in sizes)
    starts = np.cumsum([0, *(n for stream in streams for n in stream)], dtype=np.int64)
    first = np.cumsum([0, *map(len, streams)]).tolist()
    mixture = WeightedMixture(choose, method, 1, ShardSampler())
    selections = [mixture.select(starts, first, 7, epoch, shuffled=True) for epoch in (0, 0, 1)]
    taken = [s.samples(np.arange(s.size)).tolist() for s in selections]
    assert taken[0] == taken[1]
    assert method == "balanced" or taken[0] == taken[2]
    counts = Counter(taken[0])
    for number, (low, high) in enumerate(pairwise(np.cumsum([0, *sizes]).tolist())):
        own = [counts[sample] for sample in range(low, high)]
        assert sum(own) == choose[number]
        assert max(own) - min(own) <= 1  # a sample comes again once all have come
    entries = selections[0]
    for sample in range(sum(sizes)):
        places = [entry for entry, found in enumerate(taken[0]) if found == sample]
        assert sorted(entries.entries(sample)) == places


def test_a_balanced_selection_differs_by_epoch():
    starts = np.arange(0, 1001, 10)
    mixture = WeightedMixture((500,), "balanced", 1, ShardSampler())
    found = [
        tuple(s.samples(np.arange(500)).tolist())
        for s in (mixture.select(starts, [0, 100], 1, epoch, shuffled=False) for epoch in range(3))
    ]
    assert len(set(found)) == 3


def test_what_is_taken_whole_takes_no_memory():
    starts = np.arange(0, 101, 10)
    mixture = WeightedMixture((40, 60), "balanced", 1, ShardSampler())
    assert isinstance(mixture.select(starts, [0, 4, 10], 1, 0, shuffled=True), AllSamples)


# -- weights ------------------------------------------------------------------


def test_streams_are_taken_once_unless_told():
    assert choose_per_stream([10, 20], [Weight(), Weight()], None, 0) == [10, 20]
    weights = [Weight(repeat=1.5), Weight(choose=7), Weight()]
    assert choose_per_stream([11, 20, 3], weights, None, 0) == [16, 7, 3]


@pytest.mark.parametrize("kind", ["int8", "uint8", "float16", "float32"])
def test_numbers_of_numpy_repeat_streams_of_any_size(kind):
    sizes, number = [100, 3001, 16_777_217], np.dtype(kind).type(3)
    weights = [Weight(repeat=number)] * 3
    assert choose_per_stream(sizes, weights, None, 0) == [300, 9003, 50_331_651]
    assert type(Weight(choose=number).choose) is type(number.item())


def test_an_epoch_size_goes_by_size_or_proportion():
    assert choose_per_stream([10, 30], [Weight(), Weight()], 100, 0) == [25, 75]
    weights = [Weight(proportion=3), Weight(proportion=1)]
    assert choose_per_stream([10, 30], weights, None, 0) == [30, 10]
    assert choose_per_stream([10, 30], weights, 1000, 0) == [750, 250]


@given(
    st.lists(st.floats(0.001, 10), min_size=1, max_size=9), st.integers(1, 10**7), st.integers(0, 9)
)
def test_proportions_add_up_to_the_epoch(shares, total, seed):
    chosen = choose_per_stream(
        [5] * len(shares), [Weight(proportion=share) for share in shares], total, seed
    )
    assert sum(chosen) == total
    assert all(abs(c - total * s / sum(shares)) <= 1 + 1e-6 for c, s in zip(chosen, shares))


@given(
    st.lists(st.sampled_from([0, 1, 2, 0.3]), min_size=1, max_size=9).filter(any),
    st.integers(1, 10**7),
    st.integers(0, 9),
)
def test_the_remainder_goes_to_streams_with_a_share(shares, total, seed):
    sizes, weights = [5] * len(shares), [Weight(proportion=share) for share in shares]
    chosen = choose_per_stream(sizes, weights, total, seed, round_up_zeros=False)
    assert sum(chosen) == total
    assert all(share or not taken for share, taken in zip(shares, chosen))
    if all(shares):
        assert chosen == choose_per_stream(sizes, weights, total, seed)


def test_the_remainder_goes_to_any_stream_as_in_mosaicml_streaming():
    weights = [Weight(proportion=share) for share in (0, 1, 2)]
    chosen = [choose_per_stream([5] * 3, weights, 100, seed) for seed in range(20)]
    assert [1, 33, 66] in chosen


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weight(proportion=1, repeat=2), "one of proportion, repeat and choose"),
        (lambda: Weight(proportion=-1), "proportion=-1: must be a number of at least 0"),
        (lambda: Weight(repeat=float("nan")), "repeat=nan: must be a number"),
        (lambda: Weight(choose=float("inf")), "choose=inf: must be a whole number"),
        (lambda: Weight(choose=2.5), "choose=2.5: must be a whole number"),
        (lambda: Weight(repeat=True), "repeat=True: must be a number"),
        (lambda: Weight(choose=False), "choose=False: must be a whole number"),
        (lambda: Weight(repeat="2"), "repeat='2': must be a number"),
        (lambda: Weight(repeat=1e200), r"repeat=1e\+200: must be a number"),
        (
            lambda: choose_per_stream([1], [Weight(choose=10**20)], None, 0),
            r"an epoch of 1e\+20 samples exceeds the maximum",
        ),
        (
            lambda: choose_per_stream([1], [Weight()], 10**19, 0),
            "epoch_size=10000000000000000000 exceeds",
        ),
        (
            lambda: choose_per_stream([1, 1], [Weight(proportion=1), Weight()], None, 0),
            "proportion= to every stream or to none",
        ),
        (
            lambda: choose_per_stream([1, 1], [Weight(repeat=2), Weight()], 10, 0),
            "epoch_size= goes with proportion=",
        ),
        (
            lambda: choose_per_stream([1, 1], [Weight(proportion=0)] * 2, None, 0),
            "add up to 0",
        ),
        (
            lambda: choose_per_stream([0, 1], [Weight(choose=3), Weight()], None, 0),
            "stream 0 has no samples, but the epoch takes 3 of it",
        ),
    ],
)
def test_weights_without_a_meaning_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_selections_of_streams_are_each_stream_of_the_selection():
    shards = [[20, 20], [25], [10, 50]]
    plan = Plan(shards, WeightedMixture((40, 25, 60), "balanced", 1, ShardSampler()))
    whole = plan.streams.select(1)
    each = [plan.streams.select(1, stream) for stream in range(len(shards))]
    taken = [selection.samples(np.arange(selection.size)) for selection in each]
    assert [len(samples) for samples in taken] == [sum(stream) for stream in shards]
    for stream, samples in enumerate(taken):
        assert (plan.stream_of(samples) == stream).all()
    expected = whole.samples(np.arange(whole.size))
    assert sorted(np.concatenate(taken)) == sorted(expected)
