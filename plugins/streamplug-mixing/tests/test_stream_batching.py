"""Batching methods and curricula: what each promises, in every world, from any step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_mixing import Curriculum, CurriculumChange

from streamplug.builtin.shuffles.bijection import GlobalShuffle
from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.errors import ConfigError
from streamplug.plan import ShardSampler, WeightedMixture
from streamplug.types import World
from tests.plan.plans import Plan, batches_of, places_of, ranks_of

algorithms = st.sampled_from([NoShuffle(), WindowShuffle(), GlobalShuffle()])
methods = st.sampled_from(["random", "per_stream", "stratified", "device_per_stream"])
shards_of = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=1, max_size=4)
totals = st.sampled_from([1, 2, 6, 12, 64])


@st.composite
def worlds(draw, total):
    """A world whose ranks divide a global batch of so many samples."""
    ranks = draw(st.sampled_from([r for r in range(1, total + 1) if total % r == 0]))
    nodes = draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
    return World(nodes, ranks // nodes)


def mixture_of(shards, factor=1.0):
    choose = tuple(int(sum(stream) * factor) for stream in shards)
    return WeightedMixture(choose, "balanced", 1, ShardSampler())


@given(methods, algorithms, shards_of, totals, st.integers(1, 5), st.data())
def test_a_global_batch_is_the_same_in_every_world(
    method, algorithm, shards, total, canonical_nodes, data
):
    mixture = mixture_of(shards, data.draw(st.sampled_from([1.0, 0.7, 2.3])))
    if not sum(mixture.choose):
        return
    unit = data.draw(st.sampled_from([u for u in (1, 2, 3, 4) if total % u == 0]))
    expected = None
    for _ in range(3):
        options = {"method": method, "total": total, "unit": unit}
        plan = Plan(shards, mixture, algorithm, canonical_nodes=canonical_nodes, **options)
        found = plan.batches(1, data.draw(worlds(total)))
        expected = expected or found
        assert found == expected


@given(methods, shards_of.filter(lambda s: sum(map(sum, s))), totals, st.data())
def test_every_sample_appears_and_is_found(method, shards, total, data):
    world = data.draw(worlds(total))
    plan = Plan(shards, mixture_of(shards), method=method, total=total, unit=total // world.ranks)
    epoch = plan.epoch(0)
    seen = places_of(epoch, world)
    assert set(seen) == set(range(int(plan.starts[-1])))
    for sample, places in seen.items():
        found = epoch.where(world, sample)
        assert [p.step for p in found] == sorted(p.step for p in found)
        assert Counter(found) == Counter(places)


@given(methods, algorithms, shards_of.filter(lambda s: sum(map(sum, s))), totals, st.data())
def test_a_run_goes_on_at_any_step_in_any_world(method, algorithm, shards, total, data):
    mixture = mixture_of(shards)
    if data.draw(st.booleans()):
        sizes = [sum(stream) for stream in shards]
        shares = st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes))
        steps = {0, *data.draw(st.sets(st.integers(1, 40), max_size=2))}
        # Streams without samples have no share, and one with samples has.
        changes = {
            step: [
                size and share + (size == max(sizes))
                for size, share in zip(sizes, data.draw(shares))
            ]
            for step in steps
        }
        mixture = Curriculum.parse(changes, sizes, sum(sizes))
    plan = Plan(shards, mixture, algorithm, method=method, total=total)
    whole, world = plan.batches(3, data.draw(worlds(total))), data.draw(worlds(total))
    epoch = plan.epoch(3)
    steps = np.arange(data.draw(st.integers(0, epoch.steps(world))), epoch.steps(world))
    for begin in range(3):  # as of three workers
        parts = [batches_of(epoch, rank, steps[begin::3]) for rank in ranks_of(world)]
        found = [sorted(n for batch in step for n in batch) for step in zip(*parts)]
        assert found == [whole[step] for step in steps[begin::3]]


@given(shards_of.filter(lambda s: sum(map(sum, s))), totals, st.data())
def test_a_global_batch_of_per_stream_is_of_one_stream(shards, total, data):
    plan = Plan(shards, mixture_of(shards), method="per_stream", total=total)
    ids = plan.ids(0, data.draw(worlds(total)))
    streams = [
        set(step.tolist())
        for step in plan.stream_of(ids).transpose(1, 0, 2).reshape(ids.shape[1], -1)
    ]
    assert all(len(step) == 1 for step in streams)
    steps = Counter(step.pop() for step in streams)
    assert steps == {s: -(-sum(shards[s]) // total) for s in range(len(shards)) if sum(shards[s])}


@given(shards_of.filter(lambda s: sum(map(sum, s))), totals, st.data())
def test_a_batch_of_device_per_stream_is_of_one_stream(shards, total, data):
    world = data.draw(worlds(total))
    options = {"method": "device_per_stream", "total": total, "unit": total // world.ranks}
    plan = Plan(shards, mixture_of(shards), **options)
    streams = plan.stream_of(plan.ids(0, world))
    assert (streams == streams[:, :, :1]).all()


@given(st.lists(st.integers(1, 400), min_size=1, max_size=5), totals, st.data())
def test_batches_of_stratified_have_all_streams_by_their_shares(sizes, total, data):
    world = data.draw(worlds(total))
    shards = [[size] for size in sizes]
    plan = Plan(shards, mixture_of(shards), method="stratified", total=total)
    streams = plan.stream_of(plan.ids(0, world))[:, : sum(sizes) // total]
    shares = np.array(sizes) / sum(sizes)
    for step in streams.transpose(1, 0, 2):
        counts = np.array([np.bincount(rank, minlength=len(sizes)) for rank in step])
        assert (np.abs(counts.sum(0) - shares * total) < 3).all()
        # Ranks of one node differ by the one sample that rounding leaves over.
        nodes = counts.reshape(world.nodes, world.ranks_per_node, -1)
        assert (nodes.max(1) - nodes.min(1) <= 1).all()


def test_nodes_keep_to_their_own_canonical_nodes():
    shards = [[100] * 16, [100] * 8]
    for method in ("stratified", "per_stream", "device_per_stream"):
        for nodes in (2, 4):
            options = {"method": method, "total": 10 * nodes, "unit": 5}
            plan = Plan(shards, mixture_of(shards), canonical_nodes=4, block_size=200, **options)
            ids = plan.ids(0, World(nodes, 2))
            shard = np.searchsorted(plan.starts, ids, side="right") - 1
            opened = [len(np.unique(shard[2 * node : 2 * node + 2])) for node in range(nodes)]
            assert max(opened) <= 24 / nodes * 1.7, (method, nodes, opened)


# -- curricula --------------------------------------------------------------------------


def curriculum_of(changes, sizes, epoch_size=None):
    made = tuple(
        CurriculumChange(step, tuple(map(float, shares))) for step, shares in changes.items()
    )
    return Curriculum(made, epoch_size or sum(sizes), tuple(sizes))


SIZES = (40, 25, 60)
SHARDS = [[20, 20], [25], [10, 50]]
CHANGES = {0: [0.9, 0.1, 0], 7: [0.2, 0.3, 0.5], 18: [0, 0, 1], 20: [1, 1, 1]}


def lessons(changes=CHANGES, epoch_size=144, method="stratified", **config):
    return Plan(SHARDS, curriculum_of(changes, SIZES, epoch_size), method=method, **config)


@given(st.sampled_from(["random", "per_stream", "stratified", "device_per_stream"]), st.data())
def test_a_curriculum_is_the_same_in_every_world(method, data):
    expected, total = None, data.draw(st.sampled_from([12, 48, 64]))
    for _ in range(2):
        world = data.draw(worlds(total))
        plan = lessons(method=method, unit=4, total=total)
        found = [plan.batches(number, world) for number in range(3)]
        expected = expected or found
        assert found == expected


def test_streams_have_their_shares_before_and_after_each_change():
    plan = lessons()
    ids = np.concatenate([plan.ids(number, World())[0] for number in range(3)])
    streams = plan.stream_of(ids)
    bounds = [*CHANGES, len(ids)]
    for first, last, shares in zip(bounds, bounds[1:], CHANGES.values()):
        for step in range(first, last):
            counts = np.bincount(streams[first : step + 1].reshape(-1), minlength=3)
            expected = np.array(shares) / sum(shares) * 12 * (step + 1 - first)
            assert (np.abs(counts - expected) <= 1).all()


@pytest.mark.parametrize("method", ["stratified", "per_stream", "device_per_stream"])
def test_nothing_is_repeated_or_lost_within_a_pass(method):
    plan = lessons(method=method, unit=4)
    ids = np.concatenate([plan.ids(number, World())[0].reshape(-1) for number in range(4)])
    for stream, size in enumerate(SIZES):
        own = ids[plan.stream_of(ids) == stream]
        first = int(plan.firsts[stream])
        # Units of one stream are sorted inside a batch only as a whole, so passes can be told.
        for start in range(0, len(own) - size + 1, size):
            assert sorted(own[start : start + size].tolist()) == list(range(first, first + size))
        if len(own) >= 2 * size:
            assert own[:size].tolist() != own[size : 2 * size].tolist()


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["stratified", "per_stream", "device_per_stream"]), st.data())
def test_where_a_sample_is_seen_in_an_epoch_of_a_curriculum(method, data):
    world, plan = data.draw(worlds(12)), lessons(method=method, unit=4)
    epoch = plan.epoch(data.draw(st.integers(0, 2)))
    seen = places_of(epoch, world)
    for sample in range(sum(SIZES)):
        assert set(epoch.where(world, sample)) == set(seen[sample])


def test_shares_are_taken_as_they_are_written():
    ids = Plan([[100], [100]], curriculum_of({0: [0.7, 0.3]}, (100, 100)), total=10).ids(
        0, World()
    )[0]
    assert ((ids < 100).sum(1) == 7).all()


def test_shares_of_no_short_ratio_are_rounded():
    shares = [0.1234567890123456, 1 / 3, 1e-9]
    plan = Plan([[50]] * 3, curriculum_of({0: shares}, (50, 50, 50), 5000), total=10)
    counts = np.bincount(plan.stream_of(plan.ids(0, World())).reshape(-1), minlength=3)
    assert (np.abs(counts - np.array(shares) / sum(shares) * 5000) <= 1.5).all()


def test_a_curriculum_has_no_selection_of_an_epoch():
    with pytest.raises(ConfigError, match="pass after pass"):
        lessons().streams.select(0)
