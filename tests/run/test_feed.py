from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.run.feed import Block

batches = st.lists(st.lists(st.integers(0, 40), max_size=6), min_size=1, max_size=30)


def shards_of(ids):
    return (ids // 5).tolist()


@given(batches, st.integers(0, 20))
def test_by_needs_blocks_need_what_their_first_rows_do(batches, rows):
    steps = np.arange(7, 7 + len(batches))
    ids = np.array([number for batch in batches for number in batch], np.int64)
    offsets = np.cumsum([0, *map(len, batches)])
    found = list(Block(steps, ids, offsets).split_by_needs(shards_of, rows))
    given_out = [(step, b.ids[part].tolist()) for b in found for step, part in b.batches()]
    assert given_out == [(step, batch) for step, batch in zip(steps.tolist(), batches) if batch]
    each = max(rows * len(batches) // max(len(ids), 1), 1)
    for block in found:
        first = block._cut(0, each)
        assert set(shards_of(block.ids)) == set(shards_of(first.ids))
    for before, after in pairwise(found):
        assert not set(shards_of(after._cut(0, each).ids)) <= set(shards_of(before.ids))
