from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug.builtin.shuffles.bijection import GlobalShuffle
from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan import Epoch, positions, steps_per_epoch, worker_steps
from streamplug.types import World

algorithms = st.sampled_from([NoShuffle(), WindowShuffle(), GlobalShuffle()])
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


def divisions(ranks: int) -> list[tuple[int, int]]:
    """All ways to spread so many ranks over nodes."""
    return [(n, ranks // n) for n in range(1, ranks + 1) if ranks % n == 0]


def make(
    algorithm: ShuffleAlgorithm, shards: list[int], lanes: int, batch: int, epoch: int = 0
) -> Epoch:
    total = sum(shards)
    lanes = min(lanes, total)
    order = algorithm.order(
        np.array(shards, np.int64), canonical_nodes=lanes, seed=7, epoch=epoch, block_size=16
    )
    return Epoch(order, total, lanes, batch)


def global_batches(epoch: Epoch, world: World, batch: int, first: int = 0) -> list[list[int]]:
    """What all ranks and workers of a world get, step by step."""
    steps: dict[int, list[int]] = {}
    for rank in range(world.ranks):
        for worker in range(world.workers_per_rank):
            place = World(world.nodes, world.ranks_per_node, world.workers_per_rank, rank, worker)
            taken = worker_steps(place, first, epoch.steps)
            for step, ids in zip(taken.tolist(), epoch.ids(positions(place, batch, taken))):
                steps.setdefault(step, []).extend(ids.tolist())
    return [steps[step] for step in sorted(steps)]


@settings(deadline=None, max_examples=60)
@given(algorithms, sizes, st.integers(1, 6), st.sampled_from([1, 2, 4, 6, 12]), st.data())
def test_a_global_batch_is_the_same_in_every_world(algorithm, shards, lanes, total, data):
    epoch = make(algorithm, shards, lanes, total)
    expected = None
    for _ in range(3):
        ranks = data.draw(st.sampled_from([r for r in range(1, total + 1) if total % r == 0]))
        nodes, local = data.draw(st.sampled_from(divisions(ranks)))
        world = World(nodes, local, data.draw(st.integers(1, 3)))
        found = [sorted(ids) for ids in global_batches(epoch, world, total // ranks)]
        expected = expected or found
        assert found == expected


@settings(deadline=None, max_examples=60)
@given(algorithms, sizes, st.integers(1, 6), st.integers(1, 12))
def test_every_sample_appears_and_few_appear_twice(algorithm, shards, lanes, batch):
    epoch = make(algorithm, shards, lanes, batch)
    ids = epoch.ids(np.arange(epoch.steps * batch))
    counts = Counter(ids.tolist())
    size = sum(shards)
    assert set(counts) == set(range(size))
    lanes = min(lanes, size)
    repeats = epoch.steps * batch - size
    assert repeats < lanes + batch
    assert steps_per_epoch(size, lanes, batch) == epoch.steps


@settings(deadline=None, max_examples=40)
@given(algorithms, sizes, st.integers(1, 4), st.integers(1, 8), st.data())
def test_resuming_at_any_step_gives_the_rest(algorithm, shards, lanes, batch, data):
    epoch = make(algorithm, shards, lanes, batch)
    whole = global_batches(epoch, World(), batch)
    first = data.draw(st.integers(0, epoch.steps))
    workers = data.draw(st.integers(1, 4))
    again = make(algorithm, shards, lanes, batch)
    assert global_batches(again, World(workers_per_rank=workers), batch, first) == whole[first:]


def test_lanes_are_interleaved():
    epoch = make(NoShuffle(), [10], 2, 5)
    assert epoch.ids(np.arange(10)).tolist() == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_a_lane_that_is_short_repeats_its_last():
    epoch = make(NoShuffle(), [5], 2, 2)
    assert epoch.steps == 3
    assert epoch.ids(np.arange(6)).tolist() == [0, 2, 1, 3, 1, 4]


def test_the_epoch_is_filled_up_from_its_beginning():
    epoch = make(NoShuffle(), [5], 1, 4)
    assert epoch.steps == 2
    assert epoch.ids(np.arange(8)).tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_batch_larger_than_the_set_goes_round_it():
    epoch = make(NoShuffle(), [3], 1, 8)
    assert epoch.ids(np.arange(8)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_positions_may_have_any_shape():
    epoch = make(NoShuffle(), [12], 1, 4)
    assert epoch.ids(np.arange(12).reshape(3, 4)).tolist() == np.arange(12).reshape(3, 4).tolist()
    assert epoch.ids(np.empty((0, 4), np.int64)).shape == (0, 4)
