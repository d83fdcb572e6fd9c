"""Puts the values of one column together that were read in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamplug.interfaces import Column
from streamplug.types import ColumnValues, Int64

Part = tuple[Int64, Column, ColumnValues]
"""Places of some values among all, their column, and these values."""


def merge_values(count: int, parts: Sequence[Part]) -> ColumnValues:
    """Return the values of one column as one array, or as a list if they differ in dtype or shape.

    Slices of that list are arrays where their values do not differ: what a batch is must not depend on
    which others were read along with it.
    """
    first = parts[0][2]
    if isinstance(first, np.ndarray) and all(
        isinstance(v, np.ndarray) and v.dtype == first.dtype and v.shape[1:] == first.shape[1:]
        for _, _, v in parts
    ):
        array = np.empty((count, *first.shape[1:]), first.dtype)
        for places, _, values in parts:
            array[places] = values
        return array
    mixed = _Mixed(count, parts)
    return mixed if any(isinstance(v, np.ndarray) for _, _, v in parts) else list(mixed)


class _Mixed(list[Any]):
    """Values of several dtypes, shapes or encodings."""

    def __init__(self, count: int, parts: Sequence[Part]) -> None:
        super().__init__([None] * count)
        self._parts = parts
        for places, column, values in parts:
            for to, value in zip(places.tolist(), column.encoding.unbatch(values)):
                self[to] = value

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return super().__getitem__(at)
        start, stop, step = at.indices(len(self))
        if step != 1:
            return super().__getitem__(at)
        some: list[Part] = []
        for places, column, values in self._parts:
            inside = np.flatnonzero((places >= start) & (places < stop))
            if len(inside):
                resolve_indices = (
                    values[inside]
                    if isinstance(values, np.ndarray)
                    else [values[i] for i in inside.tolist()]
                )
                some.append((places[inside] - start, column, resolve_indices))
        part = merge_values(stop - start, some) if some else []
        return list(part) if isinstance(part, _Mixed) else part

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
