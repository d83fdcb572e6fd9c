"""Columns that differ between shards, which then cannot be read as one data set."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from streamplug.errors import ConfigError
from streamplug.index.model import Index, Schema
from streamplug.interfaces import Column


@dataclass(frozen=True, slots=True)
class ColumnMismatch:
    """A column that differs between two schemas: its encoding in each, None where it is missing."""

    column: str
    expected: str | None
    found: str | None

    def describe(self, here: str, there: str) -> str:
        """Describe the difference of `here`, with the other schema, from `there`, with the first one."""
        name = repr(self.column)
        if self.found is None:
            return f"{here} has no column {name}, which is {self.expected!r} in {there}"
        if self.expected is None:
            return f"{here} has a column {name} ({self.found!r}), which {there} has not"
        return f"column {name} is {self.found!r} in {here}, but {self.expected!r} in {there}"

    def remedy(self, here: str, there: str) -> str:
        """Describe how to resolve the difference; arguments are those of `describe`."""
        if self.expected is not None and self.found is not None:
            # The shorter one takes no None.
            is_nullable = self.found == f"{self.expected}?"
            spec = f"{self.column}:{self.found if is_nullable else self.expected}"
            return f"write one of them anew (streamplug convert … --columns {spec})"
        where = there if self.found is None else here
        return f"write {where} anew without it (streamplug convert … --drop {self.column})"


def find_mismatches(
    first: Schema, other: Schema, columns: Collection[str] | None = None
) -> Iterator[ColumnMismatch]:
    """Yield the columns that differ between two schemas, regardless of their order.

    Encodings agree if they decode to values of one type: those with the same spec, arrays of one dtype
    regardless of shape, and encodings with the same decoder and state, such as those of image files.
    """
    first_columns = {column.name: column for column in first.columns}
    other_columns = {column.name: column for column in other.columns}
    for name in {**first_columns, **other_columns}:
        if columns is not None and name not in columns:
            continue
        one, two = first_columns.get(name), other_columns.get(name)
        if one is None or two is None:
            yield ColumnMismatch(name, one.spec if one else None, two.spec if two else None)
        elif name in first.decoders and name in other.decoders:
            continue  # both are decoded by the user's decoders
        elif not _agree(one, two):
            yield ColumnMismatch(name, one.spec, two.spec)


def _agree(one: Column, two: Column) -> bool:
    if one.spec == two.spec:
        return True
    a, b = one.encoding, two.encoding
    if a.dtype is not None and b.dtype is not None:
        return a.dtype.base == b.dtype.base and bool(a.dtype.shape) == bool(b.dtype.shape)
    if a.dtype is not None or b.dtype is not None:
        return False
    has_same_decoder = type(a).decode is type(b).decode
    return has_same_decoder and pickle.dumps(vars(a)) == pickle.dumps(vars(b))


def find_shard_mismatches(
    index: Index, columns: Collection[str] | None = None
) -> Iterator[tuple[int, ColumnMismatch]]:
    """Yield the first shard of each schema that differs from that of shard 0, with each differing column."""
    if len(index.schemas) < 2 or not len(index):
        return
    expected = index.schema(0)
    for number, schema in enumerate(index.schemas):
        for mismatch in find_mismatches(expected, schema, columns):
            # Searched only on a mismatch, as there may be many shards.
            if (shards := np.flatnonzero(index.schema_of == number)).size:
                yield int(shards[0]), mismatch


def check_same_columns(index: Index, columns: Collection[str] | None) -> None:
    """Raise ConfigError if shards differ in their columns."""
    for shard, mismatch in find_shard_mismatches(index, columns):
        names = [index.shard(n).basename for n in (0, shard)]
        both = f"shard {shard} ({names[1]})", f"shard 0 ({names[0]})"
        raise ConfigError(
            f"{index.where}: {mismatch.describe(*both)}; all shards of a data set need the same columns: "
            f"read only others, with columns=, or {mismatch.remedy(*both)}"
        )
