"""Reader of samples that are files, with columns from their content and path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from streamplug_files import ShardManifest

from streamplug.interfaces import Column, ShardHeader, ShardReader
from streamplug.plugin_kit import decode_values, undecodable_error
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample

_SLASH = ord("/")


class _Stored:
    """Location of the encoded values of a column.

    Attributes:
        starts: Offset of each value, shape ``[n]``.
        sizes: Bytes of each value, shape ``[n]``.
        data: Buffer of the values; None is the data file.
    """

    __slots__ = ("data", "sizes", "starts")

    def __init__(self, starts: Int64, sizes: Int64, data: Bytes1D | None) -> None:
        self.starts, self.sizes, self.data = starts, sizes, data


class FilesHead(ShardHeader):
    """Offsets of the files of one shard."""

    def __init__(self, bundle: ShardManifest) -> None:
        """Set the manifest of the shard."""
        self._bundle = bundle
        self._starts = bundle.ends - bundle.sizes
        self._columns: dict[str, _Stored] = {}

    def __len__(self) -> int:
        return len(self._bundle)

    def stored(self, name: str) -> _Stored:
        """Return the location of a column's values."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._stored(name)
        return column

    def _stored(self, name: str) -> _Stored:
        bundle = self._bundle
        if name == "label":
            labels = np.ascontiguousarray(bundle.labels, "<i8")
            places = np.arange(len(bundle)) * 8
            return _Stored(places, np.full(len(bundle), 8), labels.view(np.uint8))
        starts = bundle.name_starts
        if name == "path":
            return _Stored(starts, bundle.name_ends - starts, bundle.names)
        if name == "class":
            slashes = np.append(np.flatnonzero(bundle.names == _SLASH), len(bundle.names))
            stops = slashes[np.searchsorted(slashes, starts)]
            return _Stored(starts, np.minimum(stops, bundle.name_ends) - starts, bundle.names)
        return _Stored(self._starts, bundle.sizes, None)

    def byte_ranges(self, rows: Int64) -> Int64:
        return np.stack([self._starts[rows], self._bundle.ends[rows]], axis=1)

    def sizes(self, column: Column) -> Int64:
        return self.stored(column.name).sizes

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        return [self._taken(rows, data, starts, column) for column in columns]

    def take_whole(
        self, rows: Int64, data: Bytes1D, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Decode samples from the whole data file."""
        return self.take(rows, data, self._starts[rows], columns)

    def _taken(self, rows: Int64, data: Bytes1D, starts: Int64, column: Column) -> ColumnValues:
        stored = self.stored(column.name)
        if stored.data is not None:
            data, starts = stored.data, stored.starts[rows]

        def where(row: int) -> str:
            return self.named(row, column.name)

        return decode_values(column, rows, data, starts, stored.sizes[rows], where=where)

    def named(self, row: int, column: str) -> str:
        """Return the name of a value for errors."""
        return f"sample {row} ({self._bundle.name(row)}), column {column!r}"

    @property
    def name_of(self) -> Callable[[int], str]:
        return self._bundle.name


class FilesReader(ShardReader):
    """Reads the samples of one shard from its data file."""

    def __init__(self, head: FilesHead, data: Bytes1D) -> None:
        """Read from `data`, the concatenated files."""
        self._head, self._data = head, data
        self._plan: tuple[Sequence[Column] | None, list[tuple[Any, ...]]] = (None, [])

    @property
    def name_of(self) -> Callable[[int], str]:
        return self._head.name_of

    def __len__(self) -> int:
        return len(self._head)

    def byte_range(self, index: int) -> tuple[int, int]:
        start, stop = self._head.byte_ranges(np.array([index]))[0].tolist()
        return start, stop

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        planned, plan = self._plan
        if planned is not columns:
            plan = [self._planned(column) for column in columns]
            self._plan = columns, plan
        sample: Sample = {}
        name = ""
        try:
            for name, starts, sizes, view, decode in plan:
                start = starts[index]
                sample[name] = decode(view[start : start + sizes[index]])
        except Exception as error:
            raise undecodable_error(self._head.named(index, name), error) from error
        return sample

    def _planned(self, column: Column) -> tuple[Any, ...]:
        stored = self._head.stored(column.name)
        view = memoryview(self._data if stored.data is None else stored.data)  # type: ignore[arg-type]  # an array is a buffer
        starts, sizes = memoryview(stored.starts), memoryview(stored.sizes)  # type: ignore[arg-type]  # an array is a buffer
        return column.name, starts, sizes, view, column.encoding.decode

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        return self._head.take_whole(rows, self._data, columns)
