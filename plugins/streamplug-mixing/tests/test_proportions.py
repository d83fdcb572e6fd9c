"""Proportions of streams that change by hand and as planned: segments, and what they read."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_mixing import Curriculum

from streamplug.errors import ConfigError, StateError
from streamplug.plan import Position, ShardSampler, WeightedMixture
from streamplug.types import World
from tests.plan.plans import Plan, places_of

SIZES = (40, 25, 60)
STARTS = np.cumsum([0, 20, 20, 25, 10, 50])  # shards of three streams
STREAM_SHARDS = [0, 2, 3, 5]
SHARDS = [[20, 20], [25], [10, 50]]
TOTAL = 12  # samples of a global batch
SCHEDULED = ["stratified", "per_stream", "device_per_stream"]
methods = st.sampled_from(["random", *SCHEDULED])
choices = st.sampled_from([SIZES, (20, 60, 45), (90, 0, 30)])


def mixture_of(choose=SIZES, **changes):
    options = {"method": "balanced", "granularity": 1, "is_relative": True}
    return WeightedMixture(tuple(choose), sampler=ShardSampler(), **{**options, **changes})


def plan_of(method, choose=SIZES, changes=(), **mixture):
    plan = Plan(SHARDS, mixture_of(choose, **mixture), method=method, unit=3)
    for step, proportions in changes:
        plan.change(step, proportions)
    return plan


def stream_of(ids):
    return np.searchsorted(STARTS[STREAM_SHARDS], ids, side="right") - 1


@st.composite
def worlds(draw):
    """A world whose ranks divide a global batch."""
    ranks = draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
    nodes = draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
    return World(nodes, ranks // nodes)


@given(methods, choices, st.integers(0, 40), st.data())
def test_steps_before_the_change_stay_and_all_are_the_same_in_every_world(
    method, choose, step, data
):
    steps_of = lambda plan, world: [  # noqa: E731
        ids for number in range(3) for ids in plan.batches(number, world)
    ]
    before = steps_of(plan_of(method, choose), World())
    changed = plan_of(method, choose, [(step, [0, 1, 3])])
    alone = steps_of(changed, World())
    assert len(alone) == len(before)
    assert alone[:step] == before[:step]
    assert steps_of(changed, data.draw(worlds())) == alone
    counts = np.bincount(stream_of(np.array(alone[step:])).reshape(-1))
    if method == "stratified" and step < len(alone):
        assert (counts == np.array([0, 3, 9]) * (len(alone) - step)).all()


@settings(deadline=None, max_examples=20)
@given(methods, st.integers(0, 30), st.integers(0, 2), st.data())
def test_where_a_sample_is_seen_about_a_change(method, step, number, data):
    world, plan = data.draw(worlds()), plan_of(method, changes=[(step, [0, 1, 3])])
    epoch = plan.epoch(number)
    seen = places_of(epoch, world)
    assert epoch.steps(world) * TOTAL == plan.planner.length(plan.segments[0], World())
    for sample in range(sum(SIZES)):
        assert set(epoch.where(world, sample)) == set(seen[sample])


@pytest.mark.parametrize("method", SCHEDULED)
@pytest.mark.parametrize("step", [4, 9, 15])
def test_the_pass_of_a_stream_goes_on(method, step):
    plan = plan_of(method, changes=[(step, [1, 1, 1])])
    per_epoch = plan.epoch(0).steps(World())
    ids = np.concatenate([plan.ids(number, World())[0] for number in range(4)])
    ids = ids[step // per_epoch * per_epoch :].reshape(-1)  # from the epoch of the change on
    for stream, size in enumerate(SIZES):
        own = ids[stream_of(ids) == stream]
        padded = -(-size // 3) * 3 if method == "device_per_stream" else size
        for first, length in ((0, padded), (padded, size)):
            counts = Counter(own[first : first + length].tolist())
            assert len(counts) == size  # every sample, and only padding twice


def test_passes_begin_anew_where_an_epoch_has_one_order_for_all_streams():
    plan = plan_of("random", changes=[(5, [0, 1, 3])])
    ids = np.concatenate([plan.ids(number, World())[0] for number in range(3)])[5:]
    for stream in (1, 2):
        own = ids[stream_of(ids) == stream]
        assert len(set(own[: SIZES[stream]].tolist())) == SIZES[stream]


def test_a_change_takes_the_place_of_another_at_its_position():
    plan = plan_of("random", changes=[(7, [0, 1, 3]), (9, [1, 0, 0]), (9, [0, 0, 1])])
    assert [segment.proportions for segment in plan.segments] == [None, (0, 1, 3), (0, 0, 1)]
    assert [segment.start for segment in plan.segments[1:]] == [Position(0, 84), Position(0, 108)]
    assert plan.planner.segments_until(Position(0, 96), plan.segments) == plan.segments[:2]
    plan = plan_of("random", changes=[(0, [0, 1, 3])])
    assert [segment.proportions for segment in plan.segments] == [(0, 1, 3)]


PLANNED = {0: [1, 1, 1], 5: [1, 0, 0], 30: [0, 1, 0]}


def plan_of_curriculum(changes, method="stratified"):
    return Plan(SHARDS, Curriculum.parse(changes, SIZES, 120), method=method)


def test_planned_changes_are_segments_and_those_by_hand_replace_them():
    plan = plan_of_curriculum(PLANNED)
    until = plan.planner.segments_until
    planned = until(Position(3), plan.segments)
    assert [(s.start, s.proportions, s.by_hand) for s in planned] == [
        (Position(), (1, 1, 1), False),
        (Position(0, 60), (1, 0, 0), False),
        (Position(3), (0, 1, 0), False),
    ]
    plan.change(5, [0, 0, 1])
    plan.change(8, [1, 1, 0])
    changed = until(Position(2), plan.segments)
    assert [(s.start.done, s.proportions, s.by_hand) for s in changed] == [
        (0, (1, 1, 1), False),
        (60, (0, 0, 1), True),
        (96, (1, 1, 0), True),
    ]
    whole = [plan.batches(number, World()) for number in range(4)]
    for position in (Position(0, 48), Position(0, 60), Position(1), Position(3), Position(3, 12)):
        again = plan_of_curriculum(PLANNED)
        again.segments = again.planner.resume(until(position, plan.segments), position)
        later = {number: again.batches(number, World()) for number in range(position.epoch, 4)}
        if position >= Position(0, 96):
            assert all(later[number] == whole[number] for number in later)
        else:  # it does not know of the changes after it
            assert later[0][: position.done // TOTAL] == whole[0][: position.done // TOTAL]


def test_a_state_may_have_a_past_that_nobody_plans():
    plan = plan_of_curriculum(PLANNED)
    saved = plan.planner.segments_until(Position(3, 12), plan.segments)
    other = plan_of_curriculum({0: [1, 1, 1], 40: [1, 1, 0]})
    other.segments = other.planner.resume(saved, Position(3, 12))
    assert other.batches(3, World()) == plan.batches(3, World())
    assert other.batches(5, World()) != plan.batches(5, World())
    for changes in ({0: [1, 1, 2]}, {0: [1, 1, 1], 5: [1, 1, 0]}, {0: [1, 1, 1], 6: [1, 0, 0]}):
        planner = plan_of_curriculum(changes).planner
        with pytest.raises(StateError, match="of another run: curriculum up to"):
            planner.resume(saved, Position(3, 12))
    # What is planned where the state is may be planned anew, unless a step is begun.
    planner = plan_of_curriculum({0: [1, 1, 1], 5: [0, 1, 0]}).planner
    until = plan.planner.segments_until(Position(0, 60), plan.segments)
    assert len(planner.resume(until, Position(0, 60))) == 1
    with pytest.raises(StateError, match="of another run: curriculum up to"):
        planner.resume(until, Position(0, 60), within_step=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_relative": False}, "begin the run with proportion= of each stream"),
        ({"method": "fixed"}, "sampling_method='fixed'"),
        ({"granularity": 4}, "sampling_granularity=4"),
    ],
)
def test_mixtures_of_parts_are_refused(changes, message):
    options = {"method": "balanced", "granularity": 1, "is_relative": True, **changes}
    plan = Plan(SHARDS, WeightedMixture(SIZES, sampler=ShardSampler(), **options))
    with pytest.raises(ConfigError, match=message):
        plan.change(3, [1, 1, 1])


def test_a_global_batch_that_changes_needs_one_order_over_all_streams():
    for plan in (plan_of("stratified"), plan_of_curriculum(PLANNED, "random")):
        with pytest.raises(ConfigError, match="the global batch of 12 becomes 16, which needs"):
            plan.planner.with_global_batch(plan.segments, Position(1), 16)
    plan = plan_of("random")
    plan.segments = plan.planner.with_global_batch(plan.segments, Position(0, 24), 16)
    with pytest.raises(ConfigError, match="after a change of the global batch"):
        plan.change(3, [1, 1, 1])
