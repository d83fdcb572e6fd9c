from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan.elastic import CanonicalNodes


@given(st.integers(0, 200), st.integers(1, 30))
def test_every_entry_has_one_position_and_canonical_nodes_are_taken_in_turn(size, count):
    canonical_nodes = CanonicalNodes(size, count)
    entries = canonical_nodes.entries(np.arange(size)).tolist()
    assert sorted(entries) == list(range(size))
    assert [canonical_nodes.position(entry) for entry in entries] == list(range(size))
    turns = np.searchsorted(canonical_nodes.bounds, entries, side="right") - 1
    assert turns[: size // count * count].tolist() == list(range(count)) * (size // count)
    places = entries - canonical_nodes.bounds[turns]
    assert places.tolist() == sorted(places.tolist())
