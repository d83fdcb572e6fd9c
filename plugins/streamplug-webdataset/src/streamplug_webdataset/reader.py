"""Reads samples of archives: of whole ones, and of parts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamplug.errors import DecodeError
from streamplug.interfaces import Column, ShardHeader, ShardReader
from streamplug.plugin_kit import decode_values, merge_values, undecodable_error
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample
from streamplug_webdataset.members import BLOCK
from streamplug_webdataset.names import KEY, URL
from streamplug_webdataset.sample_locations import SampleLocations


class _ValueOffsets:
    """Where the values of one column lie.

    Attributes:
        begins: Where each begins, -1 for none, int64, shape ``[samples]``.
        sizes: How many bytes each has, of the same shape.
        whole: Whether every sample has one.
    """

    __slots__ = ("begins", "sizes", "whole")

    def __init__(self, begins: Int64, sizes: Int64) -> None:
        self.begins, self.sizes = begins, sizes
        self.whole = not len(begins) or bool(begins.min() >= 0)


class TarHeader(ShardHeader):
    """Knows where the samples of one archive lie."""

    def __init__(self, places: SampleLocations, name: str) -> None:
        """Take what the file beside the archive says, and the name of the archive in its data set."""
        self._places, self._name = places, name
        self._values: dict[str, _ValueOffsets] = {}
        for extension, blocks, sizes in zip(places.extensions, places.blocks, places.sizes):
            begins = np.where(blocks > 0, blocks.astype(np.int64) * BLOCK, -1)
            self._values[extension] = _ValueOffsets(begins, sizes.astype(np.int64))
        ends = places.key_ends.astype(np.int64)
        self._keys = _ValueOffsets(
            np.concatenate([ends[:0], [0], ends])[: len(ends)], np.diff(ends, prepend=0)
        )
        self._none = _ValueOffsets(np.full(len(ends), -1, np.int64), np.zeros(len(ends), np.int64))

    def of(self, name: str) -> tuple[_ValueOffsets, Bytes1D | None]:
        """Return where the values of a column lie, and in what if that is not the archive."""
        if name == KEY:
            return self._keys, self._places.keys
        if name == URL:
            text = np.frombuffer(self._name.encode(), np.uint8)
            zeros = np.zeros_like(self._keys.sizes)
            return _ValueOffsets(zeros, zeros + len(text)), text
        return self._values.get(name, self._none), None

    def key(self, row: int) -> str:
        """Return the key of a sample."""
        start = int(self._keys.begins[row])
        return bytes(self._places.keys[start : start + int(self._keys.sizes[row])]).decode()

    def url(self, column: Column) -> Any:
        """Return what all samples have in the column of their archive's URL."""
        return column.encoding.decode(memoryview(self._name.encode()))

    def byte_ranges(self, rows: Int64) -> Int64:
        return self._places.ranges(rows)

    def sizes(self, column: Column) -> Int64 | None:
        values, _ = self.of(column.name)
        return values.sizes if values.whole else None

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        moved = starts - self.byte_ranges(rows)[:, 0]
        return [self._take_column(rows, data, moved, column) for column in columns]

    def take_whole(
        self, rows: Int64, data: Bytes1D, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Decode samples of a whole archive."""
        return [self._take_column(rows, data, None, column) for column in columns]

    def _take_column(
        self, rows: Int64, data: Bytes1D, moved: Int64 | None, column: Column
    ) -> ColumnValues:
        if column.name == URL:
            return [self.url(column)] * len(rows)
        values, text = self.of(column.name)
        begins, sizes = values.begins[rows], values.sizes[rows]
        if values.whole:
            if text is not None:
                data = text
            elif moved is not None:
                begins = begins + moved
            return self._decoded(column, rows, data, begins, sizes)
        have = np.flatnonzero(begins >= 0)
        if moved is not None:
            begins = begins + moved
        if not len(have):
            return [None] * len(rows)
        some = self._decoded(column, rows[have], data, begins[have], sizes[have])
        return merge_values(len(rows), [(have, column, some)])

    def _decoded(
        self, column: Column, rows: Int64, data: Bytes1D, begins: Int64, sizes: Int64
    ) -> ColumnValues:
        def where(row: int) -> str:
            return self.named(row, column.name)

        return decode_values(column, rows, data, begins, sizes, where=where)

    def named(self, row: int, name: str) -> str:
        """Return what errors call a value."""
        values, text = self.of(name)
        at = f" at byte {int(values.begins[row])}" if text is None else ""
        return f"sample {row} (key {self.key(row)!r}), column {name!r}{at}"

    @property
    def name_of(self) -> Callable[[int], str]:
        return lambda row: f"{self._name}, key {self.key(row)!r}"


class TarReader(ShardReader):
    """Reads the samples of one archive."""

    def __init__(self, places: SampleLocations, data: Bytes1D, name: str) -> None:
        """Read from `data`, by what the file beside it says; `name` is that of the archive."""
        self._places, self._head = places, TarHeader(places, name)
        self._data = data
        self._view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        self._row_plan: tuple[Sequence[Column], list[Any], Sample] = ((), [], {})

    @property
    def name_of(self) -> Callable[[int], str]:
        return self._head.name_of

    def __len__(self) -> int:
        return self._places.samples

    def byte_range(self, index: int) -> tuple[int, int]:
        start, stop = self._places.ranges(np.array([index]))[0].tolist()
        return start, stop

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        planned, plan, constant = self._row_plan
        if planned is not columns:
            plan = [self._planned(column) for column in columns if column.name != URL]
            constant = {c.name: self._head.url(c) for c in columns if c.name == URL}
            self._row_plan = (columns, plan, constant)
        sample = constant.copy()
        name = ""
        try:
            for name, begins, sizes, view, fixed, decode in plan:
                begin = begins[index]
                if begin < 0:
                    sample[name] = None
                    continue
                size = sizes[index]
                if fixed is not None and fixed != size:
                    raise DecodeError(f"a value has {fixed} bytes, this one has {size}")
                sample[name] = decode(view[begin : begin + size])
        except Exception as error:
            raise undecodable_error(self._head.named(index, name), error) from error
        return sample

    def _planned(self, column: Column) -> tuple[Any, ...]:
        values, text = self._head.of(column.name)
        view = self._view if text is None else memoryview(text)  # type: ignore[arg-type]  # an array is a buffer
        begins, sizes = memoryview(values.begins), memoryview(values.sizes)  # type: ignore[arg-type]  # an array is a buffer
        return column.name, begins, sizes, view, column.encoding.size, column.encoding.decode

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        return self._head.take_whole(rows, self._data, columns)
