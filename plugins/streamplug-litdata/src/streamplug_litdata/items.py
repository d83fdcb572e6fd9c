"""Chunks of items: the offset of each item, and per item the sizes of its leaves and their bytes.

All integers little-endian::

    uint32            N, the number of items
    uint32[N + 1]     offset of each item; the end of the last
    items             uint32[leaves], the size of each leaf; the leaves
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import CorruptShardError
from streamplug.interfaces import Column, ShardHeader, ShardReader
from streamplug.plugin_kit import decode_values, windows
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample
from streamplug_litdata.specs import Spec, leaves

U32 = np.dtype("<u4")


def head_size(items: int) -> int:
    """Return the bytes of a chunk's header."""
    return 4 * (items + 2)


class FieldLayout(NamedTuple):
    """The leaves of a column.

    Attributes:
        first: Number of the first leaf.
        many: Number of leaves.
        one: Whether the column is a single leaf.
        stored: Whether items have the column.
        refused: Whether the column can be read only from Arrow rows.
    """

    first: int
    many: int
    one: bool
    stored: bool
    refused: bool


class Leaves:
    """Assignment of the leaves of items to columns.

    Attributes:
        count: Leaves of an item.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        """Set all columns, in stored order."""
        self._places: dict[str, FieldLayout] = {}
        self.count = 0
        for column in columns:
            spec = Spec.parse(column.spec)
            stored, count = spec.stored, len(list(leaves(spec.stored)))
            self._places[column.name] = FieldLayout(
                self.count,
                count,
                one=isinstance(stored, str),
                stored=stored is not None,
                refused=stored == "pickle" != spec.kind,
            )
            self.count += count
        self._only = columns[0].name if self.count == 1 else None

    def place(self, name: str) -> FieldLayout:
        """Return the leaves of a column."""
        return self._places[name]

    def is_only(self, column: Column) -> bool:
        """Return whether a column is the only leaf of items."""
        return self._only == column.name and self.count == 1

    def bounds(self, data: Bytes1D, rows: Int64, starts: Int64, sizes: Int64) -> Int64:
        """Return the offsets of the leaves of items in a buffer, and the end of the last.

        Args:
            data: The buffer.
            rows: Numbers of the items, for errors.
            starts: Offset of each item, shape ``[n]``.
            sizes: Bytes of each item, shape ``[n]``.

        Returns:
            Shape ``[leaves + 1, n]``.

        Raises:
            CorruptShardError: If the sizes of an item and its leaves differ.
        """
        short = sizes < 4 * self.count
        if short.any():
            at = int(short.argmax())
            raise _corrupt(int(rows[at]), f"{sizes[at]} bytes, too few for {self.count} leaves")
        offsets = np.empty((self.count + 1, len(rows)), np.int64)
        offsets[0] = starts + 4 * self.count
        if self.count:
            heads = windows(data, np.dtype((U32, (self.count,))))[starts]
            np.cumsum(heads.T, axis=0, dtype=np.int64, out=offsets[1:])
            offsets[1:] += offsets[0]
        wrong = offsets[-1] != starts + sizes
        if wrong.any():
            at = int(wrong.argmax())
            raise _corrupt(
                int(rows[at]), f"{sizes[at]} bytes, its leaves {offsets[-1, at] - starts[at]}"
            )
        return offsets

    def take(
        self, data: Bytes1D, rows: Int64, starts: Int64, sizes: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Decode items in a buffer; arguments as for `bounds`.

        Raises:
            CorruptShardError: As for `bounds`, and if a leaf has an invalid size.
            DecodeError: If a value cannot be decoded.
        """
        bounds = self.bounds(data, rows, starts, sizes)
        return [self._column(data, rows, bounds, column) for column in columns]

    def _column(self, data: Bytes1D, rows: Int64, bounds: Int64, column: Column) -> ColumnValues:
        place = self._places[column.name]
        if place.refused:
            raise CorruptShardError(
                f"column {column.name!r} is pickled in this chunk, and in others of the set it is not"
            )
        if not place.stored:
            return [None] * len(rows)
        begins, ends = bounds[place.first], bounds[place.first + place.many]
        lengths = ends - begins
        if not place.one:
            data, begins, lengths = _with_sizes(data, bounds, place)
        return decoded(column, rows, data, begins, lengths)


def _with_sizes(data: Bytes1D, bounds: Int64, place: FieldLayout) -> tuple[Bytes1D, Int64, Int64]:
    """Return the leaves of a column, prefixed by their sizes."""
    part = bounds[place.first : place.first + place.many + 1]
    sizes = np.ascontiguousarray(np.diff(part, axis=0).T.astype(U32))
    pieces = []
    for head, start, stop in zip(sizes, part[0].tolist(), part[-1].tolist()):
        pieces += [head.tobytes(), data[start:stop].tobytes()]
    lengths = part[-1] - part[0] + 4 * place.many
    return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(lengths) - lengths, lengths


def decoded(
    column: Column, rows: Int64, data: Bytes1D, begins: Int64, sizes: Int64
) -> ColumnValues:
    """Decode the values of a column; errors name the item.

    Raises:
        CorruptShardError: If a value does not have the fixed size of the encoding.
        DecodeError: If a value cannot be decoded.
    """
    fixed = column.encoding.size
    if fixed is not None and (wrong := sizes != fixed).any():
        at = int(wrong.argmax())
        raise CorruptShardError(
            f"sample {rows[at]}, column {column.name!r}: a leaf of {sizes[at]} bytes, not {fixed}"
        )
    return decode_values(column, rows, data, begins, sizes)


def _corrupt(row: int, how: str) -> CorruptShardError:
    return CorruptShardError(f"sample {row}: its item has {how}")


def offsets_of(head: Bytes1D, items: int, least: int = 0) -> NDArray[np.uint32]:
    """Return the offsets of the items of a chunk, and the end of the last, shape ``[items + 1]``.

    Args:
        head: The chunk, or at least its first `head_size` bytes.
        items: Number of items according to the index.
        least: Minimum bytes of an item.

    Raises:
        CorruptShardError: If the header does not match the index.
    """
    size = head_size(items)
    if len(head) < size:
        raise CorruptShardError(f"{len(head)} bytes cannot hold the {items} items of the index")
    count = int(head[:4].view(U32)[0])
    if count != items:
        raise CorruptShardError(f"it holds {count} items, the index says {items}")
    offsets: NDArray[np.uint32] = head[4:size].view(U32)
    if offsets[0] != size:
        raise CorruptShardError(f"its items begin at byte {offsets[0]}, not {size}")
    if items and (wrong := np.diff(offsets.astype(np.int64)) < least).any():
        raise CorruptShardError(f"sample {int(wrong.argmax())}: its item ends before it is whole")
    return offsets


class ItemsHead(ShardHeader):
    """Offsets of the items of one chunk."""

    def __init__(self, offsets: NDArray[Any], columns: Sequence[Column]) -> None:
        """Set the offsets and all columns."""
        self.offsets = offsets
        self.leaves = Leaves(columns)

    def byte_ranges(self, rows: Int64) -> Int64:
        return np.stack([self.offsets[rows], self.offsets[rows + 1]], axis=1).astype(np.int64)

    def single(
        self, columns: Sequence[Column]
    ) -> tuple[int, list[tuple[str, int, int | None, Callable[[memoryview], Any]]]] | None:
        """Return how to read single items: their number of leaves, and the leaves of some columns.

        Returns:
            Name, leaf, fixed size and decoder of each column; None if one is not a single leaf.
        """
        places = [self.leaves.place(column.name) for column in columns]
        if not all(place.one and not place.refused for place in places):
            return None
        return self.leaves.count, [
            (column.name, place.first, column.encoding.size, column.encoding.decode)
            for column, place in zip(columns, places)
        ]

    def sizes(self, column: Column) -> Int64 | None:
        if column.encoding.size is not None:
            return np.full(len(self.offsets) - 1, column.encoding.size, np.int64)
        if self.leaves.is_only(column):
            return np.diff(self.offsets).astype(np.int64) - 4
        return None

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        sizes = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)
        return self.leaves.take(data, rows, starts, sizes, columns)


class ItemsReader(ShardReader):
    """Reads the items of one chunk."""

    def __init__(self, data: Bytes1D, head: ItemsHead) -> None:
        """Read items in `data` at the offsets of `head`."""
        self._data, self._head = data, head
        self._bounds = memoryview(np.ascontiguousarray(head.offsets))  # type: ignore[arg-type]  # an array is a buffer

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def byte_range(self, index: int) -> tuple[int, int]:
        return self._bounds[index], self._bounds[index + 1]

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        with_care = partial(self.row, columns=columns)
        plan = self._head.single(columns)
        if plan is None:
            return with_care
        count, leaves = plan
        sizes_of, begins = struct.Struct(f"<{count}I").unpack_from, 4 * count
        bounds, view = self._bounds, memoryview(self._data)  # type: ignore[arg-type]  # an array is a buffer

        def read(index: int) -> Sample:
            start, stop = bounds[index], bounds[index + 1]
            ends = list(accumulate(sizes_of(view, start), initial=start + begins))
            if ends[-1] != stop:
                return with_care(index)
            sample: Sample = {}
            try:
                for name, leaf, size, decode in leaves:
                    begin, end = ends[leaf], ends[leaf + 1]
                    if size is not None and size != end - begin:
                        return with_care(index)
                    sample[name] = decode(view[begin:end])
            except Exception:  # noqa: BLE001 - the fallback raises the precise error
                return with_care(index)
            return sample

        return read

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._head.offsets[rows].astype(np.int64)
        return self._head.take(rows, self._data, starts, columns)
