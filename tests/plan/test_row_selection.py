"""Selections: any form gives the same rows, and the order of selected rows is that of a smaller data set."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.plan import StreamSelections, parse_selection, row_selection


@st.composite
def masks(draw):
    return np.array(draw(st.lists(st.booleans(), max_size=200)), bool)


def forms(mask):
    rows = np.flatnonzero(mask)
    shuffled = np.random.default_rng(len(rows)).permutation(rows)
    yield mask
    yield rows
    yield shuffled.astype(np.uint16)
    yield shuffled.tolist()
    if len(rows) and len(rows) == rows[-1] - rows[0] + 1:
        yield range(rows[0], rows[-1] + 1)


@given(masks(), st.integers(1, 50))
def test_all_forms_select_the_same_rows(mask, rows_per_update):
    expected = np.flatnonzero(mask)
    bounds = np.arange(len(mask) + 1)
    digests = set()
    for select in forms(mask):
        selection = pickle.loads(pickle.dumps(parse_selection(select)))
        selection.check(len(mask), "here")
        assert len(selection) == len(expected)
        assert selection.rows(np.arange(len(expected))).tolist() == expected.tolist()
        assert [selection.row(n) for n in range(len(expected))] == expected.tolist()
        assert selection.ranks(bounds).tolist() == [0, *np.cumsum(mask)]
        digests.add(selection.digest)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_selection, "_ROWS_PER_DIGEST_UPDATE", rows_per_update)
            digests.add(selection.digest)
    assert len(digests) == 1


@given(masks(), masks())
def test_different_rows_have_different_digests(one, other):
    same = np.flatnonzero(one).tolist() == np.flatnonzero(other).tolist()
    assert (parse_selection(one).digest == parse_selection(other).digest) == same


@given(
    st.lists(
        st.tuples(masks(), st.booleans(), st.lists(st.integers(0, 200), max_size=5)),
        min_size=1,
        max_size=4,
    )
)
def test_the_selections_of_streams_are_those_of_all_rows(streams):
    """Compare with one mask over the rows of all streams, shard by shard."""
    everything = np.concatenate(
        [mask if is_selected else np.ones(len(mask), bool) for mask, is_selected, _ in streams]
    )
    starts, stream_shards = [], [0]
    first = 0
    for mask, _, cuts in streams:
        starts += [first + min(cut, len(mask)) for cut in sorted({0, *cuts})]
        stream_shards.append(len(starts))
        first += len(mask)
    starts = np.array([*starts, first])
    selections = StreamSelections(
        [parse_selection(mask) if is_selected else None for mask, is_selected, _ in streams],
        [len(mask) for mask, _, _ in streams],
    )
    expected = np.flatnonzero(everything)
    assert selections.rows(np.arange(len(expected))).tolist() == expected.tolist()
    assert [selections.row(n) for n in range(len(expected))] == expected.tolist()
    virtual = selections.starts(starts, stream_shards)
    assert virtual.tolist() == np.searchsorted(expected, starts).tolist()
    assert virtual.dtype == np.int64


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("n > 1", "expected a mask of booleans, row numbers in a list or an array, or a range"),
        (b"x", "expected a mask"),
        (3, "expected a mask"),
        (slice(3), "expected a mask"),
        ({1, 2}, "expected a mask"),
        ({1: 2}, "expected a mask"),
        ([[1, 2]], "expected a mask"),
        ([[1], [2, 3]], "expected a mask"),
        ([1.5], "expected a mask"),
        (["1"], "expected a mask"),
        (iter([1]), "expected a mask"),
        ([1, 5, 1], "row 1 twice: give each row once, and repeat= to read rows repeatedly"),
        ([3, -2], "row -2: rows are counted from 0"),
        (range(-1, 3), "rows are counted from 0"),
    ],
)
def test_what_selects_no_rows_is_refused(select, reason):
    with pytest.raises(ConfigError, match=reason):
        parse_selection(select)


def test_an_empty_selection_and_an_empty_range_have_no_rows():
    for select in ([], range(5, 5), range(5, 2), np.zeros(9, bool)):
        selection = parse_selection(select)
        selection.check(9, "here")
        assert (len(selection), selection.digest) == (0, parse_selection([]).digest)


@pytest.mark.parametrize("select", [[3, 10], range(11), np.ones(11, bool), np.ones(9, bool)])
def test_a_selection_beyond_the_stream_is_refused(select):
    with pytest.raises(ConfigError, match=r"^near: select= .* the stream has 10"):
        parse_selection(select).check(10, "near")
