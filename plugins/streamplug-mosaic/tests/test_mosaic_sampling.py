"""Sampling of mosaicml-streaming: the samples of each shard, and selections."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_mosaic.sampling import MosaicSampledShards, choose_per_shard

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


def test_parts_of_many_shards_are_read_without_a_pass_over_all_samples_for_each():
    seconds = []
    for shards in (2_000, 20_000):
        _, _, selection = select([(100, 50)] * shards)
        before = time.process_time()
        ids = selection.samples(np.arange(selection.size))
        seconds.append(time.process_time() - before)
        assert (np.bincount(ids // 100) == 50).all()
    assert seconds[1] < 40 * seconds[0]  # about 17 times as long; 100 times with such passes
