"""The format of Arrow IPC files and streams, as Hugging Face Datasets saves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from streamplug_files import ScannableFormat, ScanResult, ScanSource, value_sizes

from streamplug.errors import ConfigError, CorruptShardError, InvalidIndexError
from streamplug.interfaces import Column, Encoding, ShardInfo, ShardReader
from streamplug.types import Bytes1D, Int64
from streamplug_parquet.arrow_messages import (
    DICTIONARY,
    RECORD_BATCH,
    SCHEMA,
    Message,
    iter_messages,
)
from streamplug_parquet.budget import VARIABLE
from streamplug_parquet.chunks import Chunk
from streamplug_parquet.encodings import ArrowTypes
from streamplug_parquet.footer import merge_entries
from streamplug_parquet.format import parse_columns
from streamplug_parquet.grouped_reader import GroupedReader
from streamplug_parquet.memory_bounds import decoded_limit, describe
from streamplug_parquet.types import plain, spec_of
from streamplug_parquet.values import fixed_of

_END = b"\xff\xff\xff\xff\0\0\0\0"
_SIZE_BYTES = 8  # of a compressed buffer, before its bytes


class Arrow(ScannableFormat):
    """``arrow``: IPC files and streams of Arrow, as Hugging Face Datasets saves them, with a row per sample.

    Directories are read without the files ``cache-*.arrow`` that Hugging Face Datasets keeps in them.
    """

    suffix = "arrow"
    hidden_names: ClassVar[str] = r"\.|cache-"
    encodings: ClassVar[Mapping[str, Encoding]] = ArrowTypes()

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        return parse_columns(entry, make_encoding)

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        reader = ArrowReader(files["data"], columns)
        if len(reader) != shard.samples:
            raise CorruptShardError(f"it has {len(reader)} rows, the index says {shard.samples}")
        return reader

    def scan(self, file: ScanSource) -> ScanResult:
        messages = list(iter_messages(file.read, file.size))
        schema = _read_schema(messages, file.read)
        batches = [message for message in messages if message.kind == RECORD_BATCH]
        if not schema.names:
            raise InvalidIndexError("it has no columns")
        if len(set(schema.names)) < len(schema.names):
            raise InvalidIndexError("it has several columns of one name")
        has_missing_entry = any(any(m.null_counts) for m in messages if m.kind == DICTIONARY)
        specs, number = {}, 0
        for field in schema:
            try:
                spec = spec_of(plain(field.type))
            except ConfigError as error:
                raise InvalidIndexError(f"column {field.name!r}: {error}") from None
            count = _count_arrays(field.type)
            # Values of fixed size have no None in them, unlike other lists.
            own = slice(number, number + (1 if fixed_of(plain(field.type)) is None else count))
            is_nullable = any(any(batch.null_counts[own]) for batch in batches)
            is_nullable |= has_missing_entry and _has_dictionary(field.type)
            specs[field.name] = f"{spec}?" if is_nullable else spec
            number += count
        entry = {"columns": specs, "format": "arrow", "version": 2}
        return ScanResult(sum(batch.rows for batch in batches), entry)

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return merge_entries(entries)


class ArrowReader(GroupedReader):
    """Reads the rows of one file, record batch by record batch."""

    header_bytes = 0

    def __init__(self, data: Bytes1D, columns: Sequence[Column]) -> None:
        """Find the record batches.

        Raises:
            CorruptShardError: If the file is damaged or its columns differ from the index.
        """
        self._view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        messages = list(iter_messages(self._read, len(data)))
        self._batches = [message for message in messages if message.kind == RECORD_BATCH]
        self._shared = [m for m in messages if m.kind in (SCHEMA, DICTIONARY)]
        self._schema = _read_schema(messages, self._read)
        super().__init__([batch.rows for batch in self._batches], columns)
        self.check_schema(self._schema)

    def _read(self, start: int, stop: int) -> bytes:
        return bytes(self._view[start:stop])

    def byte_ranges(self, group: int, columns: Sequence[Column]) -> Int64:
        return np.empty((0, 2), np.int64)

    def decode(self, group: int, columns: Sequence[Column]) -> dict[str, Chunk]:
        batch = self._batches[group]
        names = [column.name for column in columns]
        # Dictionaries may change from batch to batch: those before it are its own.
        messages = [m for m in self._shared if m.start < batch.start] + [batch]
        limit = decoded_limit(sum(message.stop - message.start for message in messages))
        self._check_decompressed(messages, limit, describe(group, names))
        try:
            read = self._read_batch(messages, names)
        except MemoryError:
            raise
        except Exception as error:  # Arrow does not document its errors for damaged files
            raise CorruptShardError(f"{describe(group, names)}: it is damaged: {error}") from error
        chunks = {}
        for column in columns:
            values = read.column(column.name)
            _check_repeated(values, limit, describe(group, [column.name]))
            chunks[column.name] = self.chunk(group, column, pa.chunked_array([values]), limit)
        return chunks

    def _check_decompressed(self, messages: Sequence[Message], limit: int, what: str) -> None:
        """Refuse messages whose buffers take more than `limit` bytes when they are decompressed."""
        total = 0
        for start, stored in (buffer for m in messages for buffer in m.compressed):
            if stored < _SIZE_BYTES:  # it is empty
                continue
            # Before the compressed bytes is their size after it; -1 if they are stored as they are.
            size = int.from_bytes(self._view[start : start + _SIZE_BYTES], "little", signed=True)
            total += max(size, stored)
        if total > limit:
            raise _too_large(what, total, limit)

    def _read_batch(self, messages: Sequence[Message], names: Sequence[str]) -> pa.RecordBatch:
        """Read columns of the last message as a stream of these messages."""
        fields = [self._schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        parts = [self._view[message.start : message.stop] for message in messages]
        with pa.ipc.open_stream(pa.py_buffer(b"".join([*parts, _END])), options=options) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
        return batch


def _check_repeated(values: pa.Array, limit: int, what: str) -> None:
    """Refuse values that take more than `limit` bytes when each has a copy of what several refer to."""
    is_text = _is_dictionary(values.type) and plain(values.type) in (pa.string(), pa.binary())
    if is_text and not values.dictionary.null_count:
        values = values.dictionary  # which the reader keeps
    if not _has_references(values.type):
        return
    sizes = value_sizes(values)
    total = sizes * len(values) if isinstance(sizes, float) else float(sizes.sum())
    if total > limit:
        raise _too_large(what, int(total), limit)


def _too_large(what: str, size: int, limit: int) -> CorruptShardError:
    return CorruptShardError(
        f"{what}: the values take up to {size} bytes when decoded, more than the limit of {limit}; if you "
        f"trust the file, set {VARIABLE}={size}"
    )


def _read_schema(messages: Sequence[Message], read: Callable[[int, int], bytes]) -> pa.Schema:
    if not messages or messages[0].kind != SCHEMA:
        raise CorruptShardError(
            "it does not begin with a schema: it is no file of Arrow, or damaged"
        )
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(read(messages[0].start, messages[0].stop)))
        for field in schema:
            plain(field.type)
    except Exception as error:  # Arrow does not document its errors for damaged files
        raise CorruptShardError(f"its schema is damaged, or unknown: {error}") from error
    count = sum(map(_count_arrays, schema.types))
    for message in messages:
        if message.kind == RECORD_BATCH and len(message.null_counts) != count:
            raise CorruptShardError(
                f"the record batch at byte {message.start} has {len(message.null_counts)} arrays, its schema "
                f"{count}"
            )
    return schema


def _count_arrays(type_: pa.DataType) -> int:
    """Return the number of arrays that values of a type consist of: itself and those in it."""
    return 1 + sum(map(_count_arrays, _inner_types(type_)))


def _has_references(type_: pa.DataType) -> bool:
    """Return whether several values of a type, or ones in them, may refer to the same bytes."""
    is_view = str(type_) in ("string_view", "binary_view")
    return is_view or _is_dictionary(type_) or any(map(_has_references, _inner_types(type_)))


def _has_dictionary(type_: pa.DataType) -> bool:
    """Return whether values of a type, or ones in them, are numbers of entries of a dictionary."""
    return _is_dictionary(type_) or any(map(_has_dictionary, _inner_types(type_)))


def _is_dictionary(type_: pa.DataType) -> bool:
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return bool(pa.types.is_dictionary(type_))


def _inner_types(type_: pa.DataType) -> Iterator[pa.DataType]:
    if isinstance(type_, pa.BaseExtensionType):
        yield from _inner_types(type_.storage_type)
    elif not pa.types.is_dictionary(type_):
        yield from (type_.field(number).type for number in range(type_.num_fields))
