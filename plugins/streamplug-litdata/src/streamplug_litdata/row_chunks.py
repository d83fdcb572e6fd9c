"""Chunks of rows: a header of empty items, then an Arrow file, its size, and a magic number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from streamplug_files import ValueSizes, value_sizes

from streamplug.errors import ConfigError, CorruptShardError
from streamplug.interfaces import Column, Encoding, ShardReader
from streamplug.plugin import make
from streamplug.plugin_kit import merge_values, undecodable_error
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample
from streamplug_litdata.items import decoded, head_size, offsets_of
from streamplug_litdata.memory_bounds import check_decoded_size, check_value_sizes, decoded_bytes
from streamplug_litdata.specs import Options, Spec

MARK = b"LDARW01\0"
_END = 12
"""Bytes of the size and the magic number."""

_NUMBERS, _TEXTS = 1, 2
"""Buffers of an Arrow column: numbers or text offsets; text."""

_SCALAR_KINDS = ("bool", "bytes", "float", "int", "str")

_FILE, _FILE_HEAD = b"ARROW1", 8
"""What a file of Arrow begins with; bytes before its first message."""


def has_rows(data: Bytes1D) -> bool:
    """Return whether a chunk has Arrow rows."""
    return data[-len(MARK) :].tobytes() == MARK


class _ValueRanges(NamedTuple):
    """Values of a column, encoded as leaves of a chunk of items.

    Attributes:
        data: A buffer.
        begins: Offset of each value, shape ``[rows]``.
        sizes: Bytes of each value, shape ``[rows]``.
    """

    data: Bytes1D
    begins: Int64
    sizes: Int64


class _ArrowColumn:
    """An Arrow column.

    Attributes:
        array: The Arrow array.
        there: Mask of values that are not None, or None if all are.
        values: Zero-copy view of the values as leaves, or None if Arrow stores them differently.
        sizes: Bytes of the values as Python objects, if `values` is None.
    """

    sizes: ValueSizes = 0.0

    def __init__(self, array: Any, kind: str | None) -> None:
        self.array = array
        self.is_present = np.asarray(array.is_valid()) if array.null_count else None
        self.values = _values(array, kind)
        if self.values is None:
            array.validate(full=True)  # damaged offsets would point outside the buffers
            # Lists of different lengths would not fit into an array of scalars.
            if kind in _SCALAR_KINDS and array.type.num_fields:
                raise CorruptShardError(f"its values are {array.type}, the index says {kind}")
            self.sizes = value_sizes(array)


def _values(array: Any, kind: str | None) -> _ValueRanges | None:
    import pyarrow as pa

    first, count = array.offset, len(array)
    if not count:
        return None
    if kind == "bool" and array.type == pa.bool_():
        bits = np.asarray(array.fill_null(False)).view(np.uint8)
        return _ValueRanges(bits, np.arange(count), np.ones(count, np.int64))
    numbers = {"int": pa.int64(), "float": pa.float64()}
    if array.type == numbers.get(kind or ""):
        data = np.frombuffer(array.buffers()[_NUMBERS], np.uint8)
        return _ValueRanges(data, 8 * np.arange(first, first + count), np.full(count, 8))
    texts = {
        "str": {pa.string(): "<i4", pa.large_string(): "<i8"},
        "bytes": {pa.binary(): "<i4", pa.large_binary(): "<i8"},
    }
    width = texts.get(kind or "", {}).get(array.type)
    if width is None:
        return None
    _, edges, content = array.buffers()
    ends = np.frombuffer(edges, width)[first : first + count + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    sizes = np.diff(ends)
    if ends[0] < 0 or (sizes < 0).any() or ends[-1] > len(data):
        raise CorruptShardError("its values do not lie one after the other in their memory")
    return _ValueRanges(data, ends[:-1], sizes)


def _check_names(type_: Any) -> None:
    """Raise UnicodeDecodeError if the name of a field within a type is not UTF-8."""
    for number in range(type_.num_fields):
        field = type_.field(number)
        field.name  # noqa: B018 - decodes it
        _check_names(field.type)


class RowsReader(ShardReader):
    """Reads a chunk of rows; columns stay decompressed in memory after the first read."""

    def __init__(self, data: Bytes1D, rows: int, columns: Sequence[Column]) -> None:
        """Open the Arrow file at the end of a chunk.

        Args:
            data: The chunk.
            rows: Number of rows according to the index.
            columns: Columns of the index.

        Raises:
            ConfigError: If pyarrow is not installed.
            CorruptShardError: If the chunk is damaged, does not match the index, or takes far more memory.
        """
        try:
            import pyarrow.ipc as _  # noqa: F401 - used below
        except ImportError:
            raise ConfigError(
                "the rows of this set are in Arrow: pip install 'streamplug-litdata[arrow]'"
            ) from None
        offsets_of(data, rows)
        size = int(data[-_END : -len(MARK)].view("<u4")[0])
        self._begin = len(data) - _END - size
        if self._begin < head_size(rows):
            raise CorruptShardError(f"its rows should take {size} bytes of {len(data)}")
        self._data, self._rows = data[self._begin : -_END], rows
        self._specs = {column.name: Spec.parse(column.spec) for column in columns}
        self._check_size(columns)
        self._names = self._column_names()
        self._known: dict[str, _ArrowColumn | None] = {}
        self._locks: dict[int, Lock] = {}  # by process

    def __len__(self) -> int:
        return self._rows

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        with_care = partial(self.row, columns=columns)
        plan: list[tuple[Any, ...]] = []
        for column in columns:
            known = self._column(column.name)
            if known is None or known.values is None or known.is_present is not None:
                return with_care
            data, begins, sizes = (memoryview(values) for values in known.values)  # type: ignore[arg-type]  # arrays are buffers
            plan.append((column.name, data, begins, sizes, column.encoding.decode))

        def read(index: int) -> Sample:
            sample: Sample = {}
            try:
                for name, data, begins, sizes, decode in plan:
                    begin = begins[index]
                    sample[name] = decode(data[begin : begin + sizes[index]])
            except Exception:  # noqa: BLE001 - the fallback raises the precise error
                return with_care(index)
            return sample

        return read

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        return [self._taken(rows, column, self._column(column.name)) for column in columns]

    def _taken(self, rows: Int64, column: Column, known: _ArrowColumn | None) -> ColumnValues:
        if known is None:
            return [None] * len(rows)
        if known.is_present is None or known.is_present[rows].all():
            return self._present_values(rows, column, known)
        places = np.flatnonzero(known.is_present[rows])
        some = self._present_values(rows[places], column, known) if len(places) else []
        return merge_values(len(rows), [(places, column, some)])

    def _present_values(self, rows: Int64, column: Column, known: _ArrowColumn) -> ColumnValues:
        """Decode values, none of which is None."""
        if known.values is not None:
            data, begins, sizes = known.values
            return decoded(column, rows, data, begins[rows], sizes[rows])
        import pyarrow as pa

        check_value_sizes(known.sizes, rows, len(self._data), column)
        values: list[Any] = known.array.take(pa.array(rows)).to_pylist()
        own = self._specs[column.name].encoding(column.name, Options(), _make)
        if type(column.encoding) is type(own):
            return values
        batch = []
        for row, value in zip(rows.tolist(), values):  # custom decoder
            try:
                batch.append(column.encoding.decode(memoryview(own.encode(value))))
            except Exception as error:
                raise undecodable_error(f"sample {row}, column {column.name!r}", error) from error
        return batch

    def _column(self, name: str) -> _ArrowColumn | None:
        if name not in self._known:
            # A lock of this process: another thread may have held the parent's at a fork.
            with self._locks.setdefault(os.getpid(), Lock()):
                if name not in self._known:
                    self._known[name] = self._read(name) if name in self._names else None
        return self._known[name]

    def _column_names(self) -> list[str]:
        schema = self._opened(None).schema
        try:
            names: list[str] = schema.names
            for type_ in schema.types:
                _check_names(type_)
        except UnicodeDecodeError as error:
            raise CorruptShardError(f"the name of a column is not UTF-8: {error}") from error
        return names

    def _read(self, name: str) -> _ArrowColumn:
        import pyarrow as pa

        try:
            chunks = self._opened(self._names.index(name)).read_all().column(0)
            if len(chunks) != self._rows:
                raise CorruptShardError(f"{len(chunks)} rows, the index says {self._rows}")
            # Before combining, which reads out of bounds if chunks are damaged.
            chunks.validate(full=not _is_flat(chunks.type))
            return _ArrowColumn(chunks.combine_chunks(), self._specs[name].kind)
        except CorruptShardError as error:
            raise CorruptShardError(f"column {name!r}: {error}") from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptShardError(f"column {name!r} cannot be read: {error}") from error

    def _check_size(self, columns: Sequence[Column]) -> None:
        """Refuse rows that take far more memory when they are decompressed."""
        check_decoded_size(decoded_bytes(self._messages()), len(self._data), columns)

    def _messages(self) -> Iterator[Any]:
        """Yield the messages before the first that is damaged, at which reading raises an error, too."""
        import pyarrow as pa

        with suppress(pa.ArrowException, OSError):
            yield from pa.ipc.MessageReader.open_stream(self._stream())

    def _stream(self) -> Any:
        """Return the messages; a file of Arrow is a stream of them, with a list of their places."""
        import pyarrow as pa

        is_file = self._data[: len(_FILE)].tobytes() == _FILE
        return pa.py_buffer(self._data[_FILE_HEAD:] if is_file else self._data)

    def _opened(self, field: int | None) -> Any:
        """Open the Arrow file, to read one column if `field` is not None."""
        import pyarrow as pa

        options = pa.ipc.IpcReadOptions(included_fields=None if field is None else [field])
        try:
            return pa.ipc.open_stream(self._stream(), options=options)
        except (pa.ArrowException, OSError) as error:
            raise CorruptShardError(
                f"its rows at byte {self._begin} cannot be read: {error}"
            ) from error


def _is_flat(type_: Any) -> bool:
    """Return whether Arrow's quick validation suffices for values of a type."""
    import pyarrow as pa

    is_texts = type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return is_texts or pa.types.is_primitive(type_)


def _make(_: str, spec: str) -> Encoding:
    encoding: Encoding = make("encoding", spec)
    return encoding
