from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan import positions, worker_steps
from streamplug.types import World

worlds = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))


def ranks(nodes: int, ranks_per_node: int, workers: int = 1, worker: int = 0) -> list[World]:
    return [
        World(nodes, ranks_per_node, workers, rank, worker)
        for rank in range(nodes * ranks_per_node)
    ]


@given(worlds, st.integers(1, 6), st.integers(0, 50))
def test_the_ranks_of_a_step_cover_its_global_batch_once(world, batch, step):
    nodes, local, _ = world
    parts = [positions(w, batch, np.array([step])) for w in ranks(nodes, local)]
    assert all(part.shape == (1, batch) for part in parts)
    total = nodes * local * batch
    everything = np.concatenate(parts, axis=None)
    assert sorted(everything.tolist()) == list(range(step * total, (step + 1) * total))


@given(worlds, st.integers(1, 6))
def test_a_node_takes_the_lanes_of_its_own(world, batch):
    nodes, local, _ = world
    for place in ranks(nodes, local):
        taken = positions(place, batch, np.arange(4))
        assert set((taken % nodes).reshape(-1).tolist()) == {place.node}


@given(worlds, st.integers(0, 30), st.integers(0, 30))
def test_the_workers_of_a_rank_take_its_steps_in_turn(world, first, steps):
    workers = world[2]
    taken = [
        worker_steps(World(workers_per_rank=workers, worker=w), first, steps)
        for w in range(workers)
    ]
    assert sorted(np.concatenate(taken).tolist()) == list(range(first, max(steps, first)))
    # A loader asks its workers in turn, so this is the order that it hands out.
    turns = [
        int(taken[number % workers][number // workers]) for number in range(max(steps - first, 0))
    ]
    assert turns == list(range(first, max(steps, first)))


def test_an_example():
    world = World(nodes=2, ranks_per_node=2, rank=3)
    assert positions(world, 3, np.array([0, 5])).tolist() == [[3, 7, 11], [63, 67, 71]]
    assert worker_steps(World(workers_per_rank=2, worker=1), 3, 9).tolist() == [4, 6, 8]
