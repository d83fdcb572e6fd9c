from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan import ElasticPartition, global_batch, order_substitutes
from streamplug.types import World


class Pairs:
    """An epoch whose batches are short now and then, and have samples twice."""

    def ids(self, world, batch, steps):
        first = (steps[:, None] * world.ranks + world.rank) * batch // 2
        ids = first + np.arange(batch) // 2
        return np.where(ids % 7 == 0, -1, ids)


@given(st.integers(0, 20), st.sampled_from([1, 2, 4, 8]))
def test_a_global_batch_is_the_same_on_all_worlds(step, ranks):
    world = World(ranks_per_node=ranks, rank=ranks - 1)
    ids = global_batch(Pairs(), world, 16 // ranks, np.array([step])).tolist()
    assert ids == [n for n in range(8 * step, 8 * step + 8) if n % 7]


def test_of_an_order_of_some_shards():
    class Order:
        def ids(self, world, batch, steps):
            return ElasticPartition(100, 1, world, batch).entries(world, batch, steps)

    worlds = [World(), World(2, 2), World(1, 4, rank=3), World(8)]
    assert {tuple(global_batch(Order(), w, 8 // w.ranks, np.array([3]))) for w in worlds} == {
        tuple(range(24, 32))
    }


@st.composite
def steps(draw):
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    first_ids = np.cumsum([0, *sizes]).tolist()
    ids = draw(st.sets(st.integers(0, first_ids[-1] - 1), min_size=1))
    return sorted(ids), first_ids, draw(st.sampled_from(sorted(ids)))


@given(steps())
def test_all_others_are_tried_those_of_the_same_stream_first(step):
    ids, first_ids, sample = step
    order = order_substitutes(sample, np.array(ids), first_ids).tolist()
    assert sorted([*order, sample]) == ids
    stream = np.searchsorted(first_ids, sample, side="right")
    of_stream = (np.searchsorted(first_ids, order, side="right") == stream).tolist()
    assert of_stream == sorted(of_stream, reverse=True)


@given(steps())
def test_no_two_samples_of_a_stream_are_replaced_by_one(step):
    ids, first_ids, _ = step
    firsts = [order_substitutes(sample, np.array(ids), first_ids).tolist()[:1] for sample in ids]
    streams = np.searchsorted(first_ids, ids, side="right").tolist()
    several = [first for first, stream in zip(firsts, streams) if streams.count(stream) > 1]
    assert len(set(map(tuple, several))) == len(several)


def test_neighbours_do_not_replace_each_other():
    ids = np.arange(100, 200)
    order = order_substitutes(110, ids, [0, 1000]).tolist()
    assert order[:3] == [160, 161, 162]
    assert order[-1] == 159
    assert order_substitutes(150, ids, [0, 1000]).tolist()[0] == 100
    assert order_substitutes(5, np.array([5]), [0, 10]).tolist() == []
    assert order_substitutes(5, np.array([2, 5, 20, 30]), [0, 4, 10, 40]).tolist() == [20, 30, 2]
