from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug import MDSWriter, StreamingDataset

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint8": st.integers(0, 255),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
    "str": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "str_int": st.integers(-(10**30), 10**30),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=5,
    ),
    "ndarray:uint16:2,3": st.integers(0, 60000).map(
        lambda n: np.arange(n, n + 6, dtype=np.uint16).reshape(2, 3)
    ),
    "ndarray": st.integers(0, 5).map(lambda n: np.arange(n, dtype=np.float32)),
}
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    columns = draw(st.dictionaries(names, st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    row = st.fixed_dictionaries({name: VALUES[spec] for name, spec in columns.items()})
    return columns, draw(st.lists(row, max_size=25))


def plain(value: Any) -> Any:
    return (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    def rows(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: plain(v) for name, v in sample.items()} for sample in samples]

    return rows(one) == rows(other)


def limit_for(columns: dict[str, str], extra: int) -> int:
    return 2000 + extra + 12 * sum(len(name) for name in columns)


@given(tables(), st.integers(0, 1000), st.sampled_from([None, "gz:1"]), st.data())
def test_what_is_written_is_read(table, extra, compression, data):
    columns, rows = table
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        limit = limit_for(columns, extra)
        with MDSWriter(
            columns=columns, out=out, size_limit=limit, compression=compression
        ) as writer:
            for row in rows:
                writer.write(row)
        dataset = StreamingDataset(local=str(out))
        assert dataset.size == len(rows)
        assert same(dataset[:], rows)
        assert same([dataset[i] for i in range(len(rows))], rows)
        if rows:
            order = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=40))
            assert same(dataset[order], [rows[i] for i in order])
            assert list(dataset[0]) == sorted(columns)
            batch = next(dataset.batches(len(rows)))
            found = [dict(zip(batch, values)) for values in zip(*batch.values())]
            assert same(found, [{name: row[name] for name in sorted(row)} for row in rows])
        chosen = data.draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, unique=True))
        part = StreamingDataset(local=str(out), columns=chosen)
        expected = [{name: row[name] for name in sorted(chosen)} for row in rows]
        assert same(part[:], expected)
        assert same([part[i] for i in range(len(rows))], expected)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@given(tables(), st.integers(0, 1000), st.data())
def test_batches_give_the_same_bytes_as_samples(table, extra, data):
    columns, rows = table
    limit = limit_for(columns, extra)
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder) / "one", Path(folder) / "many"
        with MDSWriter(columns=columns, out=one, size_limit=limit, hashes=["xxh64"]) as writer:
            for row in rows:
                writer.write(row)
        with MDSWriter(columns=columns, out=many, size_limit=limit, hashes=["xxh64"]) as writer:
            start = 0
            while start < len(rows):
                stop = data.draw(st.integers(start, len(rows)))
                part = rows[start:stop]
                if data.draw(st.booleans()):
                    writer.write_batch({name: [row[name] for row in part] for name in columns})
                    start = stop
                else:
                    writer.write(rows[start])
                    start += 1
        assert files(one) == files(many)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100])
def test_arrays_of_fixed_columns_give_the_same_bytes_as_samples(tmp_path, size):
    columns = {"a": "int64", "b": "ndarray:uint8:3", "c": "float32"}
    arrays = {
        "a": np.arange(100),
        "b": np.arange(300, dtype=np.uint8).reshape(100, 3),
        "c": np.linspace(0, 1, 100, dtype=np.float32),
    }
    limit = 400 + 19 * size
    with MDSWriter(columns=columns, out=tmp_path / "one", size_limit=limit) as writer:
        for row in range(100):
            writer.write({name: values[row] for name, values in arrays.items()})
    with MDSWriter(columns=columns, out=tmp_path / "many", size_limit=limit) as writer:
        writer.write_batch(arrays)
    assert files(tmp_path / "one") == files(tmp_path / "many")
    assert (len(files(tmp_path / "one")) > 2) == (size < 100)
