"""Runs whose global batches change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.plan import ElasticPlanner, Planner, Position, ShardSampler, WeightedMixture
from streamplug.types import World
from tests.plan.plans import Plan, batches_of, places_of

SIZES = (40, 25, 60)
TOTAL = 12  # samples of a global batch


def make_plan():
    mixture = WeightedMixture(SIZES, "balanced", 1, ShardSampler())
    return Plan([[20, 20], [25], [10, 50]], mixture, unit=3)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 30)), max_size=4),
    st.data(),
)
def test_the_sequence_stays_whatever_the_global_batches(changes, data):
    plan = make_plan()
    whole = [plan.ids(number, World()).reshape(-1).tolist() for number in range(3)]
    segments, planner = plan.segments, plan.planner
    for epoch, steps, total in sorted(changes):
        latest = max((s.start.done for s in segments if s.start.epoch == epoch), default=0)
        end = planner.epoch(epoch, segments).units.stop
        position = Position(epoch, min(latest + steps * segments[-1].global_batch, end))
        segments = planner.with_global_batch(segments, position, total)
    plan.segments = segments
    for number in range(3):
        epoch = plan.epoch(number)
        # Ids of one rank are sorted by canonical node only within a batch.
        ids = [sample for batch in batches_of(epoch, World()) for sample in batch]
        size = min(sum(SIZES), len(ids))
        assert ids[:size] == whole[number][:size]
        assert len(ids) >= sum(SIZES)
        steps = epoch.steps(World())
        assert [epoch.step_at(World(), epoch.done_before(World(), s)) for s in range(steps)] == [
            *range(steps)
        ]
        seen = places_of(epoch, World())
        for sample in range(sum(SIZES)):
            assert epoch.where(World(), sample) == seen[sample]
        at = data.draw(st.integers(0, steps - 1))
        assert epoch.global_step(World(), at) == at
        assert epoch.global_ids(World(), at).tolist() == sorted(
            {*batches_of(epoch, World(), [at])[0]}
        )


def test_a_global_batch_that_changes_may_not_suit_the_ranks():
    plan = make_plan()
    plan.segments = plan.planner.with_global_batch(plan.segments, Position(0, 24), 16)
    with pytest.raises(ConfigError, match=r"a global batch of 16 cannot be divided among 3 ranks"):
        plan.epoch(0).ids(World(1, 3), np.arange(3))


def test_a_planner_without_proportions_says_so():
    class Fixed(Planner):
        def epoch(self, number, segments):
            raise NotImplementedError

    plan = make_plan()
    planner, candidates = Fixed(plan.streams), np.array([3, 1, 2])
    assert (planner.micro_batches, planner.options(), planner.identity(plan.segments[0])) == (
        None,
        {},
        {},
    )
    assert planner.order_substitutes(7, candidates) is candidates
    assert planner.length(plan.segments[0], World(2, 2)) == -(-sum(SIZES) // TOTAL) * TOTAL // 4
    for without in (planner, ElasticPlanner(plan.streams)):
        with pytest.raises(ConfigError, match="the proportions of streams cannot change"):
            without.with_proportions(plan.segments, Position(), [1, 1, 1])
        with pytest.raises(ConfigError, match="the proportions of streams cannot change"):
            without.position_of(0, plan.segments)
    with pytest.raises(ConfigError, match="which needs batching_method='random'"):
        planner.with_global_batch(plan.segments, Position(1), 7)
