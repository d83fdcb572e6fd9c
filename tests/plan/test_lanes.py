from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan.lanes import Lanes


@given(st.integers(0, 200), st.integers(1, 30))
def test_every_entry_has_one_position_and_lanes_are_taken_in_turn(size, count):
    lanes = Lanes(size, count)
    entries = lanes.entries(np.arange(size)).tolist()
    assert sorted(entries) == list(range(size))
    assert [lanes.flat(entry) for entry in entries] == list(range(size))
    turns = np.searchsorted(lanes.bounds, entries, side="right") - 1
    assert turns[: size // count * count].tolist() == list(range(count)) * (size // count)
    places = entries - lanes.bounds[turns]
    assert places.tolist() == sorted(places.tolist())
