"""Test values by encoding, and test encodings and rows."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from hypothesis import strategies as st

from streamplug.interfaces import Column, EncodedRows, Encoding, RowPiece, ShardReader

Row = dict[str, Any]

VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=9),
    "float64": st.floats(width=64).map(np.float64),
    "int": st.integers(-(2**63), 2**63 - 1),
    "json": st.recursive(st.integers() | st.text(max_size=5), st.lists, max_leaves=4),
    "ndarray": st.lists(st.integers(0, 255), max_size=6).map(lambda v: np.array(v, np.uint8)),
    "ndarray:float32:2": st.lists(st.floats(width=32), min_size=2, max_size=2).map(
        lambda v: np.array(v, np.float32)
    ),
    "ndarray:uint16": st.lists(st.integers(0, 65_535), max_size=6).map(
        lambda v: np.array(v, np.uint16)
    ),
    "str": st.text(max_size=9),
}
"""Strategies for values that decode to themselves."""

EXAMPLES: Mapping[str, Callable[[int], Any]] = {
    "bytes": lambda i: bytes([i]) * i,
    "float64": np.float64,
    "int": int,
    "json": lambda i: [i, str(i)],
    "ndarray": lambda i: np.full(i, i, np.uint8),
    "ndarray:float32:2": lambda i: np.array([i, -i], np.float32),
    "ndarray:uint16": lambda i: np.full(i, i, np.uint16),
    "str": lambda i: f"sample {i}",
}
"""Functions from a number to a deterministic value."""


class Broken(Encoding):
    """An encoding that cannot decode, with the size of another one."""

    def __init__(self, inner: Encoding) -> None:
        self.size = inner.size

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, data: memoryview) -> Any:
        raise KeyError(f"{len(data)} bytes: whatever an encoding may raise")


unpickled: list[int] = []
"""Grows when `hostile_pickles` are decoded by `pickle`."""


class _Hostile:
    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return _note_unpickling, (1,)


def _note_unpickling(number: int) -> None:
    unpickled.append(number)


def hostile_pickles() -> list[bytes]:
    """Return pickles, also within a file of NumPy, that append to `unpickled` when they are loaded."""
    npy = io.BytesIO()
    np.save(npy, np.array([_Hostile()], object), allow_pickle=True)
    return [pickle.dumps(_Hostile(), 0), pickle.dumps(_Hostile()), npy.getvalue()]


def pieces_of(rows: EncodedRows) -> list[RowPiece]:
    """Return all pieces of encoded rows."""
    if isinstance(rows, (bytes, bytearray, memoryview)):
        return [rows]
    return list(chain.from_iterable(rows)) if isinstance(rows, list) else [rows[:]]


def take_rows(reader: ShardReader, columns: Sequence[Column], rows: Sequence[int]) -> list[Row]:
    """Read samples as one batch and return them as rows."""
    values = reader.take(np.array(rows, np.int64), columns)
    assert [len(column_values) for column_values in values] == [len(rows)] * len(columns)
    split = [
        column.encoding.unbatch(column_values)
        for column, column_values in zip(columns, values, strict=True)
    ]
    names = [column.name for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*split, strict=True)]


def sort_columns(rows: Sequence[Row]) -> list[Row]:
    """Return samples with sorted columns, for comparisons that depend on their order."""
    return [dict(sorted(row.items())) for row in rows]
