"""Places of values that are decoded on first use, for their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from streamplug.interfaces import lazy_values
from streamplug.types import ColumnValues, Sample

if TYPE_CHECKING:
    from streamplug.read.open_shards import OpenShard


class ValuePlace:
    """Where a value is stored, as errors say it; made for each lazy value, so its text is made late."""

    __slots__ = ("_column", "_item", "_name_of", "_row", "_where")

    def __init__(
        self,
        where: str,
        name_of: Callable[[int], str | None] | None,
        row: int,
        column: str,
        item: int | None,
    ) -> None:
        # Not the shard itself, whose files would stay mapped.
        self._where, self._name_of = where, name_of
        self._row, self._column, self._item = row, column, item

    def __str__(self) -> str:
        name = None if self._name_of is None else self._name_of(self._row)
        named = f" ({name})" if name else ""
        item = "" if self._item is None else f", item {self._item}"
        return f"{self._where}: sample {self._row}{named}, column {self._column!r}{item}"


def set_places(
    columns: Iterable[tuple[str, ColumnValues]], shards: Iterable[OpenShard], rows: Sequence[int]
) -> None:
    """Tell the lazy values of some columns where they are stored.

    Args:
        columns: Names and values of the columns.
        shards: The shard of each sample.
        rows: Number of each sample in it.
    """
    shards = list(shards)
    for column, values in columns:
        for value, shard, row in zip(values, shards, rows):
            _set_place(value, shard.where, shard.name_of, row, column)


def place_row(read: Callable[[int], Sample], shard: OpenShard) -> Callable[[int], Sample]:
    """Return a function that reads a sample as `read` does, and tells lazy values where they are stored."""
    names, where, name_of = shard.lazy_columns, shard.where, shard.name_of

    def placed(row: int) -> Sample:
        sample = read(row)
        for name in names:
            _set_place(sample[name], where, name_of, row, name)
        return sample

    return placed


def _set_place(
    value: object,
    where: str,
    name_of: Callable[[int], str | None] | None,
    row: int,
    column: str,
) -> None:
    lazies = lazy_values(value)
    is_one = len(lazies) == 1 and lazies[0] is value
    for number, lazy in enumerate(lazies):
        lazy.place = ValuePlace(where, name_of, row, column, None if is_one else number)
