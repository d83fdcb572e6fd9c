"""Test values by encoding, and test encodings and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from hypothesis import strategies as st

from streamplug.interfaces import EncodedRows, Encoding, RowPiece

VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=9),
    "float64": st.floats(width=64).map(np.float64),
    "int": st.integers(-(2**63), 2**63 - 1),
    "json": st.recursive(st.integers() | st.text(max_size=5), st.lists, max_leaves=4),
    "ndarray": st.lists(st.integers(0, 255), max_size=6).map(lambda v: np.array(v, np.uint8)),
    "ndarray:float32:2": st.lists(st.floats(width=32), min_size=2, max_size=2).map(
        lambda v: np.array(v, np.float32)
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


def pieces_of(rows: EncodedRows) -> list[RowPiece]:
    """Return all pieces of encoded rows."""
    if isinstance(rows, (bytes, bytearray, memoryview)):
        return [rows]
    return list(chain.from_iterable(rows)) if isinstance(rows, list) else [rows[:]]
