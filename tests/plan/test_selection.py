"""Which samples of the shards make up an epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan.selection import HashSampledShards

shards = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 90)), min_size=1, max_size=6)


def selections(given_, seed=3, epoch=2):
    sizes, chosen = (np.array(each, np.int64) for each in zip(*given_))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return (
        sizes,
        chosen,
        [
            HashSampledShards(starts, chosen, seed, epoch),
        ],
    )


@given(shards, st.integers(0, 1 << 70), st.integers(0, 9))
def test_a_shard_is_taken_as_often_as_asked_and_evenly(given_, seed, epoch):
    sizes, chosen, made = selections(given_, seed, epoch)
    for selection in made:
        ids = selection.samples(np.arange(selection.size))
        counts = np.bincount(ids, minlength=int(sizes.sum()))
        for own, size, taken in zip(np.split(counts, np.cumsum(sizes)[:-1]), sizes, chosen):
            assert own.sum() == taken
            assert set(own.tolist()) <= {taken // size, -(-taken // size)}


@given(shards)
def test_samples_are_found_again(given_):
    sizes, _, made = selections(given_)
    for selection in made:
        ids = selection.samples(np.arange(selection.size))
        for sample in range(int(sizes.sum())):
            assert selection.entries(sample) == np.flatnonzero(ids == sample).tolist()


@pytest.mark.parametrize(("size", "taken"), [(10, 3), (10, 7), (1000, 501), (7, 1)])
def test_every_sample_is_as_likely_and_pairs_are_mixed(size, taken):
    rounds = 4000
    starts, chosen = np.array([0, size]), np.array([taken])
    counts = np.zeros(size)
    together = np.zeros(size)  # with the sample behind it
    for seed in range(rounds):
        own = np.zeros(size, bool)
        own[HashSampledShards(starts, chosen, seed, 0).samples(np.arange(taken))] = True
        counts += own
        together += own & np.roll(own, -1)
    share = taken / size
    sigma = np.sqrt(rounds * share * (1 - share))
    assert (np.abs(counts - rounds * share) < 5 * sigma).all()
    if taken > 1:
        assert together.max() < rounds * share  # neighbours do not come as one
        assert together.min() > 0 or share < 0.5


def test_epochs_streams_and_seeds_take_others():
    starts, chosen = np.array([0, 1000]), np.array([500])
    taken = {
        tuple(HashSampledShards(starts, chosen, *key).samples(np.arange(500)).tolist())
        for key in [(1, 0), (2, 0), (1, 1), (1, 0, 1), (1 << 64, 0), (1 << 63, 0)]
    }
    assert len(taken) == 6
