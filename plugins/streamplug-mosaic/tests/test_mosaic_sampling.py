"""Sampling of mosaicml-streaming: the samples of each shard, and selections."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_mosaic.sampling import MosaicSampledShards, MosaicSampler, choose_per_shard

from streamplug.plan import AllSamples, Mixture

GOLDEN = json.loads((Path(__file__).parent / "mosaic_sampling.json").read_text())
"""What mosaicml-streaming 0.13 takes of each shard."""

shards = st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)


@pytest.mark.parametrize("case", GOLDEN)
def test_shards_are_chosen_as_by_mosaicml_streaming(case):
    seed = case["seed"] + (case["epoch"] if case["use_epoch"] else 0)
    sizes = np.array(case["sizes"])
    assert (
        choose_per_shard(sizes, case["choose"], case["granularity"], seed).tolist() == case["out"]
    )


@settings(deadline=None)
@given(shards, st.integers(0, 500), st.integers(1, 40), st.integers(0, 99))
def test_what_is_chosen_adds_up_and_no_shard_gives_a_sample_twice(sizes, choose, run, seed):
    sizes = np.array(sizes)
    chosen = choose_per_shard(sizes, choose, run, seed)
    passes = choose // sizes.sum()
    assert chosen.sum() == choose
    assert (chosen >= passes * sizes).all()
    assert (chosen <= (passes + 1) * sizes).all()


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
    mixture = Mixture(choose, method, 1, MosaicSampler())
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


def test_what_is_taken_whole_takes_no_memory():
    starts = np.arange(0, 101, 10)
    mixture = Mixture((40, 60), "balanced", 1, MosaicSampler())
    assert isinstance(mixture.select(starts, [0, 4, 10], 1, 0, shuffled=True), AllSamples)


def select(given_, seed=3):
    sizes, chosen = (np.array(each, np.int64) for each in zip(*given_))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return sizes, chosen, MosaicSampledShards(starts, chosen, np.random.default_rng(seed))


partial_shards = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 90)), min_size=1, max_size=6)


@given(partial_shards, st.integers(0, 1 << 70))
def test_a_shard_is_taken_as_often_as_asked_and_evenly(given_, seed):
    sizes, chosen, selection = select(given_, seed)
    counts = np.bincount(selection.samples(np.arange(selection.size)), minlength=int(sizes.sum()))
    for own, size, taken in zip(np.split(counts, np.cumsum(sizes)[:-1]), sizes, chosen):
        assert own.sum() == taken
        assert set(own.tolist()) <= {taken // size, -(-taken // size)}


@given(partial_shards)
def test_samples_are_found_again(given_):
    sizes, _, selection = select(given_)
    ids = selection.samples(np.arange(selection.size))
    for sample in range(int(sizes.sum())):
        assert selection.entries(sample) == np.flatnonzero(ids == sample).tolist()
