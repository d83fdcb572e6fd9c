"""What an epoch takes of each stream and shard, and which samples, is as with mosaicml-streaming."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from streamplug_mosaic.sampling import MosaicSampler, choose_per_shard

from streamplug.errors import ConfigError
from streamplug.plan import Weight, WeightedMixture, choose_per_stream, proportion_per_stream

streams = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=1, max_size=5)
absolute = st.one_of(
    st.just({}),
    st.builds(lambda repeat: {"repeat": repeat}, st.floats(0, 4)),
    st.builds(lambda choose: {"choose": choose}, st.integers(0, 300)),
)
relative = st.builds(lambda share: {"proportion": share}, st.floats(0, 3))


@settings(deadline=None, max_examples=400)
@given(streams, st.data(), st.none() | st.integers(1, 500), st.integers(0, 2**31))
def test_weights(mosaic_plan, shards, data, epoch_size, seed):
    each = data.draw(st.sampled_from([absolute, relative, absolute | relative]))
    weights = data.draw(st.lists(each, min_size=len(shards), max_size=len(shards)))
    # Proportions that are all 0 are divided by 0 there; here they are refused.
    assume(any(weight.get("proportion") != 0 for weight in weights))
    sizes = [sum(stream) for stream in shards]
    given_weights = [Weight(**weight) for weight in weights]
    try:
        with np.errstate(all="ignore"):
            plan = mosaic_plan(shards, weights, epoch_size=epoch_size, seed=seed)
    except ValueError:
        plan = None
    try:
        choose = choose_per_stream(sizes, given_weights, epoch_size, seed)
    except ConfigError:
        assert plan is None
        return
    assert choose == [stream.choose for stream in plan.streams]
    if plan.epoch_size:
        shares = proportion_per_stream(sizes, given_weights, epoch_size, choose)
        assert shares == [stream.proportion for stream in plan.streams]


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
    st.integers(0, 2000),
    st.integers(1, 20),
    st.integers(0, 2**31),
    st.integers(0, 50),
    st.booleans(),
)
def test_what_is_taken_of_each_shard(mosaic, sizes, choose, granularity, seed, epoch, changing):
    arguments = (choose, granularity, seed, epoch, changing)
    theirs = mosaic.base.sampling.get_sampling(np.array(sizes), *arguments)
    ours = choose_per_shard(np.array(sizes), choose, granularity, seed + changing * epoch)
    assert ours.tolist() == theirs.tolist()


@settings(deadline=None, max_examples=300)
@given(
    streams,
    st.data(),
    st.integers(1, 9),
    st.sampled_from(["balanced", "fixed"]),
    st.booleans(),
    st.integers(0, 2**31),
    st.integers(0, 9),
)
def test_which_samples_are_taken(
    mosaic_plan, shards, data, granularity, method, shuffle, seed, epoch
):
    sizes = [sum(stream) for stream in shards]
    choose = [data.draw(st.integers(1, 3 * size)) for size in sizes]
    plan = mosaic_plan(
        shards,
        [{"choose": taken} for taken in choose],
        epoch_size=None,
        seed=seed,
        sampling_method=method,
        sampling_granularity=granularity,
        epoch_seed_change=shuffle and method == "balanced",
    )
    mixture = WeightedMixture(tuple(choose), method, granularity, MosaicSampler())
    starts = np.cumsum([0, *(size for stream in shards for size in stream)], dtype=np.int64)
    firsts = np.cumsum([0, *map(len, shards)]).tolist()
    together = mixture.select(starts, firsts, seed, epoch, shuffled=shuffle)
    apart = [
        mixture.select(starts, firsts, seed, epoch, stream, shuffled=shuffle)
        for stream in range(len(choose))
    ]
    for number, ours in [(None, together), *enumerate(apart)]:
        units, samples = plan.resample_streams(epoch, number)
        assert np.diff(ours.starts).tolist() == units.tolist()
        assert ours.samples(np.arange(ours.size)).tolist() == samples.tolist()
    for ours, (first, last) in zip(apart, pairwise(firsts)):
        taken = ours.samples(np.arange(ours.size))
        assert starts[first] <= taken.min() <= taken.max() < starts[last]
