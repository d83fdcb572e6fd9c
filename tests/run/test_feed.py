from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamplug.run.feed import Block

batches = st.lists(st.lists(st.integers(-1, 40), min_size=4, max_size=4), min_size=1, max_size=30)


def shards_of(ids):
    return (ids // 5).tolist()


@given(batches, st.integers(0, 20))
def test_by_needs_blocks_need_what_their_first_rows_do(batches, rows):
    steps = np.arange(7, 7 + len(batches))
    found = list(Block(steps, np.array(batches)).split_by_needs(shards_of, rows))
    given_out = [(step, b.ids[part].tolist()) for b in found for step, part in b.batches()]
    kept = [[number for number in batch if number >= 0] for batch in batches]
    assert given_out == [(step, ids) for step, ids in zip(steps.tolist(), kept) if ids]
    each = max(rows // 4, 1)
    for block in found:
        first = block._cut(0, each)
        assert set(shards_of(block.ids)) == set(shards_of(first.ids))
    for before, after in pairwise(found):
        assert not set(shards_of(after._cut(0, each).ids)) <= set(shards_of(before.ids))
