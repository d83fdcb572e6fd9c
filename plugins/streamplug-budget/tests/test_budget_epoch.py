"""Batches of limited cost are the same for every world, and every sample is in one."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_budget import BatchBudget
from streamplug_budget.planner import BudgetPlanner
from streamplug_budget.sample_lengths import (
    SampleLengths,
    StreamLengths,
    pack_lengths,
    summarize_lengths,
)
from streamplug_budget.windows import CostModel

from streamplug import World
from streamplug.errors import ConfigError
from streamplug.plan import Position, Segment, ShardSampler, Streams, WeightedMixture, rows_of
from streamplug.plugin import make

WORLDS = [World(nodes, ranks) for nodes in (1, 2, 4, 8) for ranks in (1, 2, 4, 8)]


def lengths_of(*streams):
    parts = []
    for stream in streams:
        lengths = np.array(stream, np.uint32)
        total, longest, digest = summarize_lengths(lengths).tolist()
        parts.append(
            StreamLengths(pack_lengths(lengths), len(lengths), total, longest, hex(digest))
        )
    return SampleLengths(parts)


def planner_of(lengths, starts, budget, *, choose=None, shuffle="window", max_samples=None):
    samples = [int(starts[-1])] if choose is None else list(choose)
    streams = Streams(
        np.array(starts, np.int64),
        [0, len(starts) - 1],
        WeightedMixture(tuple(samples), "balanced", 1, ShardSampler()),
        make("shuffle", shuffle),
        shuffled=shuffle != "none",
        seed=7,
        shuffle_block_size=100,
    )
    return BudgetPlanner(streams, CostModel(lengths, budget, max_samples), None)


def segments(canonical_nodes, global_batch):
    return [Segment(Position(), World(), global_batch, canonical_nodes)]


def rows(plan, world, steps=None):
    """Return the samples of each batch of a rank."""
    steps = np.arange(plan.steps(world)) if steps is None else np.array(steps, np.int64)
    return [row.tolist() for row in rows_of(*plan.ids(world, steps))]


def global_batches(plan, world, global_batch):
    """Return the samples of each batch, by global batch."""
    tables = [rows(plan, replace(world, rank=rank)) for rank in range(world.ranks)]
    per_rank = global_batch // world.ranks
    return [
        [
            row
            for step in zip(*(table[first : first + per_rank] for table in tables))
            for row in step
        ]
        for first in range(0, plan.steps(world), per_rank)
    ]


@st.composite
def runs(draw):
    sizes = draw(st.lists(st.integers(1, 900), min_size=1, max_size=5))
    limit = draw(st.integers(20, 400))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    lengths = np.clip(rng.lognormal(2, 1, sum(sizes)), 0, limit / 2).astype(int)
    budget = BatchBudget(
        limit=limit,
        column="tokens",
        pad_to=draw(st.sampled_from(["none", "batch"])),
        quadratic=draw(st.sampled_from([0.0, 0.002])),
    )
    return {
        "lengths": lengths_of(lengths),
        "starts": [0, *np.cumsum(sizes).tolist()],
        "budget": budget,
        "choose": draw(st.none() | st.integers(1, 2 * sum(sizes)).map(lambda n: [n])),
        "shuffle": draw(st.sampled_from(["window", "global", "none"])),
        "max_samples": draw(st.none() | st.integers(1, 40)),
    }


@given(runs(), st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([8, 64]), st.integers(0, 3))
def test_global_batches_are_the_same_in_every_world(run, canonical_nodes, global_batch, epoch):
    planner = planner_of(**run)
    worlds = [world for world in WORLDS if global_batch % world.ranks == 0]
    plan = planner.epoch(epoch, segments(canonical_nodes, global_batch))
    expected = None
    for world in worlds:
        batches = [sorted(batch) for batch in global_batches(plan, world, global_batch)]
        expected = batches if expected is None else expected
        assert batches == expected
    samples = np.concatenate([batch for step in expected for batch in step])
    taken = np.bincount(samples, minlength=planner.streams.samples)
    if run["choose"] is None:
        assert taken.min() >= 1
        assert taken.max() - taken.min() <= 1
    budget = run["budget"]
    for batch in (batch for step in expected for batch in step):
        costs = budget.costs(run["lengths"].of(np.array(batch)))
        cost = costs.sum() if budget.pad_to == "none" else len(batch) * costs.max()
        assert 0 < cost <= budget.largest_cost
        assert run["max_samples"] is None or len(batch) <= run["max_samples"]


@given(runs(), st.sampled_from([1, 2, 4]), st.sampled_from(WORLDS), st.data())
def test_where_is_the_inverse_of_ids(run, canonical_nodes, world, data):
    planner = planner_of(**run)
    plan = planner.epoch(1, segments(canonical_nodes, 64))
    found = {}
    for rank in range(world.ranks):
        for step, row in enumerate(rows(plan, replace(world, rank=rank))):
            for position, sample in enumerate(row):
                found.setdefault(sample, []).append((step, rank, position))
    sample = data.draw(st.integers(0, planner.streams.samples - 1))
    places = [(p.step, p.rank, p.position) for p in plan.where(world, sample)]
    assert sorted(places) == sorted(found.get(sample, []))


@given(runs(), st.data())
def test_any_steps_can_be_asked_for(run, data):
    planner = pickle.loads(pickle.dumps(planner_of(**run)))
    world = World(2, 2, rank=data.draw(st.integers(0, 3)))
    plan = planner.epoch(0, segments(2, 8))
    steps = data.draw(st.lists(st.integers(0, plan.steps(world) - 1), max_size=5))
    whole = rows(plan, world)
    assert rows(plan, world, steps) == [whole[step] for step in steps]


def test_nodes_read_their_own_canonical_nodes():
    lengths = lengths_of(np.random.default_rng(0).integers(1, 50, 40_000))
    planner = planner_of(lengths, range(0, 40_001, 100), BatchBudget(limit=500, column="tokens"))
    world, shards = World(4, 2), []
    plan = planner.epoch(0, segments(4, 8))
    for node in range(4):
        rank = replace(world, rank=2 * node)
        ids, _ = plan.ids(rank, np.arange(plan.steps(world) - 20))
        shards.append(set((ids // 100).tolist()))
    shared = sum(len(a & b) for a in shards for b in shards if a is not b)
    assert shared < 10


def test_ranks_must_divide_the_global_batch():
    planner = planner_of(lengths_of([3] * 50), [0, 50], BatchBudget(limit=9, column="tokens"))
    with pytest.raises(ConfigError, match="a step of 8 batches cannot be divided among 3 ranks"):
        planner.epoch(0, segments(1, 8)).steps(World(1, 3))


def test_costs_of_several_streams():
    lengths = lengths_of([1, 2, 3], [10, 20], [100])
    assert lengths.of(np.array([5, 0, 4, 3, 2])).tolist() == [100, 1, 20, 10, 3]
    assert (lengths.longest, lengths.find_longest(), lengths.mean) == (100, 5, 136 / 6)
    copy = pickle.loads(pickle.dumps(lengths))
    assert copy.digest == lengths.digest
    assert copy.of(np.arange(6)).tolist() == [1, 2, 3, 10, 20, 100]


@pytest.mark.parametrize(
    ("options", "lengths", "costs"),
    [
        ({}, [0, 1, 50], [1, 1, 50]),
        ({"max_length": 20}, [0, 20, 50], [1, 20, 20]),
        ({"quadratic": 0.01}, [0, 10, 50], [1, 11, 75]),
        ({"quadratic": np.float32(0.25)}, [0, 2, 4], [1, 3, 8]),
        ({"quadratic": np.int64(1)}, [0, 2, 4], [1, 6, 20]),
        ({"quadratic": 0.01, "max_length": 10}, [50], [11]),
    ],
)
def test_the_cost_of_a_sample(options, lengths, costs):
    budget = BatchBudget(limit=100, column="tokens", **options)
    assert budget.costs(np.array(lengths)).tolist() == costs
