"""Compressed sets of rows behave as sorted arrays, and damaged ones are refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_views import row_set
from streamplug_views.row_map import MISSING, RowMap
from streamplug_views.row_set import RowSet, RowSetBuilder, make_row_set

from streamplug.errors import DataError
from streamplug.plan.row_selection import SelectedRows


@st.composite
def some_rows(draw):
    """Draw rows in runs, scattered, and dense, over several chunks."""
    kinds = draw(st.lists(st.sampled_from(["run", "few", "dense", "full"]), min_size=0, max_size=5))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    parts, first = [], draw(st.integers(0, 2**40))
    for kind in kinds:
        if kind == "run":
            parts.append(np.arange(first, first + draw(st.integers(1, 200_000))))
        elif kind == "full":
            parts.append(np.arange(first >> 16 << 16, (first >> 16) + 1 << 16) + (1 << 16))
        else:
            share = 0.001 if kind == "few" else 0.4
            parts.append(first + np.flatnonzero(generator.random(100_000) < share))
        first = int(parts[-1][-1]) + draw(st.integers(1, 2**34)) if len(parts[-1]) else first + 1
    return np.concatenate([np.zeros(0, np.int64), *parts])


@pytest.mark.parametrize("max_unpacked_rows", [0, 1 << 21])
@given(some_rows(), st.data())
def test_a_set_is_a_sorted_array(max_unpacked_rows, rows, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_set, "_MAX_UNPACKED_ROWS", max_unpacked_rows)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
        made = make_row_set(np.split(rows, cuts))
        assert len(made) == len(rows)
        assert made.end == (rows[-1] + 1 if len(rows) else 0)
        assert made.digest == SelectedRows(rows).digest if len(rows) else True
        blocks = [block for _, block in made.blocks()]
        assert np.concatenate([np.zeros(0, np.int64), *blocks]).tolist() == rows.tolist()
        again = pickle.loads(pickle.dumps(made))
        if len(rows):
            places = np.array(
                data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=50))
            )
            assert again.rows(places).tolist() == rows[places].tolist()
            assert again.rows(places.reshape(1, -1)).shape == (1, len(places))
            assert made.row(int(places[0])) == rows[places[0]]
        near = [
            int(row) + delta for row in rows[:: max(len(rows) // 20, 1)] for delta in (-1, 0, 1)
        ]
        far = data.draw(st.lists(st.integers(0, 2**41), max_size=20))
        bounds = np.sort(np.array([0, *(b for b in near if b >= 0), *far], np.int64))
        assert made.ranks(bounds).tolist() == np.searchsorted(rows, bounds).tolist()


def test_a_set_is_small(tmp_path):
    generator = np.random.default_rng(0)
    sparse = np.flatnonzero(generator.random(1 << 22) < 0.1)
    path = tmp_path / "a.rows"
    assert len(make_row_set([sparse], path)) == len(sparse)
    assert path.stat().st_size <= 1.3 * len(sparse)
    make_row_set([np.arange(1 << 22)], path)
    assert path.stat().st_size < 4000


def test_rows_must_ascend():
    with RowSetBuilder() as builder:
        builder.add(np.array([3, 5]))
        for rows in ([5], [4], [9, 9], [9, 8]):
            with pytest.raises(ValueError, match="ascending"):
                builder.add(np.array(rows))


@given(st.data())
def test_a_damaged_set_is_refused_or_within_its_bounds(data):
    generator = np.random.default_rng(1)
    rows = np.concatenate([np.arange(10), 70_000 + np.flatnonzero(generator.random(300_000) < 0.3)])
    content = make_row_set([rows])._source.copy()
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        at = data.draw(st.integers(0, 200))
        content[at] ^= data.draw(st.integers(1, 255))
    try:
        damaged = RowSet(content, "data/x.rows")
        found = damaged.rows(np.arange(len(damaged)))
    except DataError:
        with pytest.raises(DataError, match=r"data/x\.rows"):
            RowSet(content, "data/x.rows").rows(np.arange(len(rows)))
        return
    assert len(found) == len(damaged)
    assert (np.diff(found) > 0).all()


def test_a_map_has_rows_in_any_order(tmp_path):
    path = tmp_path / "map.npy"
    np.save(path, np.array([4, MISSING, 0], np.int32))
    rows = pickle.loads(pickle.dumps(RowMap(path, 5, "data/map.npy")))
    assert len(rows) == 3
    assert rows.rows(np.array([2, 0, 1])).tolist() == [0, 4, MISSING]
    assert rows.row(0) == 4
    with pytest.raises(DataError, match=r"data/map\.npy has rows beyond the 4"):
        RowMap(path, 4, "data/map.npy").rows(np.array([0]))
    for content in (b"", path.read_bytes()[:20], path.read_bytes()[:-2]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"data/map\.npy is damaged"):
            RowMap(path, 4, "data/map.npy")
    np.save(path, np.zeros(3))
    with pytest.raises(DataError, match="no row numbers but float64"):
        RowMap(path, 4, "data/map.npy")
