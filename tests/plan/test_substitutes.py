from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan import order_substitutes


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
