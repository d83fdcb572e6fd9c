"""One array or list of the values of a column of which parts were decoded apart, such as by shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamplug.interfaces import Column
from streamplug.types import ColumnValues, Int64

PlacedValues = tuple[Int64, Column, ColumnValues]
"""Positions of the values among the requested samples, their column, and the values."""


def merge_values(count: int, parts: Sequence[tuple[Int64, Column, ColumnValues]]) -> ColumnValues:
    """Merge the values of one column into an array, or a list if they differ in dtype or shape.

    A slice of the list is an array if its values do not differ: a batch must not depend on which others were
    read together with it.

    Args:
        count: Number of samples.
        parts: Positions of values among the samples, their column, and the values; at least one. Samples
            without a value have None.
    """
    parts = [inner for part in parts for inner in _inner_parts(*part)]
    first = parts[0][2]
    if (
        isinstance(first, np.ndarray)
        and all(
            isinstance(v, np.ndarray) and v.dtype == first.dtype and v.shape[1:] == first.shape[1:]
            for _, _, v in parts
        )
        and sum(len(places) for places, _, _ in parts) == count
    ):
        array = np.empty((count, *first.shape[1:]), first.dtype)
        for places, _, values in parts:
            array[places] = values
        return array
    mixed = _MixedValues(count, parts)
    return mixed if any(isinstance(v, np.ndarray) for _, _, v in parts) else list(mixed)


class _MixedValues(list[Any]):
    def __init__(self, count: int, parts: Sequence[PlacedValues]) -> None:
        super().__init__([None] * count)
        self.parts = parts
        for places, column, values in parts:
            for place, value in zip(places.tolist(), column.encoding.unbatch(values)):
                self[place] = value

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return super().__getitem__(at)
        start, stop, step = at.indices(len(self))
        if step != 1:
            return super().__getitem__(at)
        inner: list[PlacedValues] = []
        for places, column, values in self.parts:
            inside = np.flatnonzero((places >= start) & (places < stop))
            if len(inside):
                some = (
                    values[inside]
                    if isinstance(values, np.ndarray)
                    else [values[i] for i in inside.tolist()]
                )
                inner.append((places[inside] - start, column, some))
        if not inner:
            return super().__getitem__(at)
        part = merge_values(stop - start, inner)
        return list(part) if isinstance(part, _MixedValues) else part

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _inner_parts(places: Int64, column: Column, values: ColumnValues) -> Sequence[PlacedValues]:
    """Return the parts of values that were merged before."""
    if not isinstance(values, _MixedValues):
        return [(places, column, values)]
    return [(places[inner], of, some) for inner, of, some in values.parts]
