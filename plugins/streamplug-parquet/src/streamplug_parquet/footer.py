"""Footers of Parquet files: rows, columns and null counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from streamplug_files import ScanResult, ScanSource

from streamplug.errors import ConfigError, CorruptShardError, InvalidIndexError
from streamplug_parquet.thrift import Chunk, check_schema_depth, chunks_of
from streamplug_parquet.types import plain, spec_of
from streamplug_parquet.values import fixed_of

MIN_FILE_BYTES = 12
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
LIKELY_FOOTER_BYTES = 1 << 16
"""Bytes at the end of a file that have most footers."""
_MARK_BYTES = 8
"""Bytes at the end of a file that tell how long its footer is."""

_NULL = "null"
_MAX_SHALLOW_BYTES = 10_000
"""Bytes of a footer whose schema cannot be nested so deeply that pyarrow crashes."""

_EXACT_WRITERS = re.compile(r"parquet-mr |parquet-cpp-arrow version ([7-9]|\d\d)")
"""Writers whose null counts include missing lists and structs. Those of others, such as Polars, may be 0."""

_LIMITS_DEPTH = int(pa.__version__.partition(".")[0]) >= 26


def scanned(file: ScanSource) -> ScanResult:
    """Scan a file; reads only its footer.

    Raises:
        CorruptShardError: If the file is damaged or is not a Parquet file.
        InvalidIndexError: If a column cannot be read.
    """
    footer = read_footer(file.size, file.read)
    metadata = parsed(footer)
    schema = schema_of(metadata)
    names = [field.name for field in schema]
    if not names:
        raise InvalidIndexError("it has no columns")
    if len(set(names)) < len(names):
        name, count = min((name, count) for name, count in Counter(names).items() if count > 1)
        raise InvalidIndexError(f"it has the column {name!r} {count} times")
    chunks = chunks_of(footer)
    missing = _missing(chunks) | _uncounted(metadata, schema, chunks)
    specs, unreadable = {}, []
    for field in schema:
        try:
            spec = spec_of(plain(field.type))
        except ConfigError as error:
            unreadable.append(f"column {field.name!r}: {error}")
            continue
        maybe = field.name in missing and not _all_given(field)
        # Of this type, a file without rows says nothing of those of others.
        maybe |= spec == _NULL and metadata.num_rows > 0
        specs[field.name] = f"{spec}?" if maybe else spec
    if unreadable:
        raise InvalidIndexError("; ".join(unreadable))
    entry = {"columns": specs, "format": "parquet", "version": 2}
    return ScanResult(metadata.num_rows, entry)


def read_footer(
    size: int, read: Callable[[int, int], bytes], likely: int = LIKELY_FOOTER_BYTES
) -> bytes:
    """Return the end of a file, which includes its footer.

    Args:
        size: Size of the file in bytes.
        read: Returns the bytes from a start to a stop.
        likely: Bytes that are read first; a longer footer takes a second read.

    Raises:
        CorruptShardError: If there is none, or it is encrypted.
    """
    if size < MIN_FILE_BYTES:
        raise CorruptShardError(f"it has {size} bytes, too few for a Parquet file")
    data = read(max(size - max(likely, _MARK_BYTES), 0), size)
    if data[-4:] == _ENCRYPTED:
        raise CorruptShardError("it is encrypted, which cannot be read")
    if data[-4:] != _MAGIC:
        raise CorruptShardError(
            "it does not end as a Parquet file does: it was cut short, or is none"
        )
    needed = footer_size(data)
    if needed + 4 > size:
        raise CorruptShardError(f"its footer would have {needed} bytes, the file has {size}")
    return data if needed <= len(data) else read(size - needed, size)


def footer_size(end: bytes | memoryview) -> int:
    """Return the bytes of the footer at the end of a buffer, with its length and mark."""
    return int.from_bytes(end[-_MARK_BYTES:-4], "little") + _MARK_BYTES


def parsed(data: Any) -> pq.FileMetaData:
    """Parse the footer at the end of a buffer.

    Raises:
        CorruptShardError: If it is damaged.
    """
    view = memoryview(pa.py_buffer(data)).cast("B")
    size = footer_size(view)
    if size > _MAX_SHALLOW_BYTES and not _LIMITS_DEPTH:
        check_schema_depth(bytes(view[-size:]))
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(data)))
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    except Exception as error:  # Arrow does not document its errors for damaged files
        raise CorruptShardError(f"its footer is damaged: {error}") from error
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise CorruptShardError(f"its row groups have {sum(counts)} rows, it {metadata.num_rows}")
    return metadata


def schema_of(metadata: pq.FileMetaData) -> pa.Schema:
    """Return the columns of a file.

    Raises:
        CorruptShardError: If its footer is damaged.
    """
    try:
        schema = metadata.schema.to_arrow_schema()
        # A damaged schema may have types that Arrow never makes, and names that are not UTF-8.
        for field in schema:
            plain(field.type)
        schema.names  # noqa: B018 - it raises
        return schema
    except Exception as error:
        raise CorruptShardError(f"its schema is damaged, or unknown: {error}") from error


def _missing(chunks: Sequence[Sequence[Chunk]]) -> set[str]:
    """Return the columns that have nulls or no null count."""
    return {chunk.name for group in chunks for chunk in group if chunk.missing}


def _uncounted(
    metadata: pq.FileMetaData, schema: pa.Schema, chunks: Sequence[Sequence[Chunk]]
) -> set[str]:
    """Return the nested columns that may have missing values which their null counts do not include."""
    if not metadata.num_rows:
        return set()
    try:
        is_exact = _EXACT_WRITERS.match(metadata.created_by or "") is not None
    except UnicodeDecodeError:
        is_exact = False
    if is_exact:
        # Arrow does not count missing structs of dictionaries, which it may store as text.
        text_counts = b"ARROW:schema" in (metadata.metadata or {})
        unknown = {c.name for group in chunks for c in group if c.values and not c.has_levels}
        return {
            field.name
            for field in schema
            if field.name in unknown
            and pa.types.is_struct(field.type)
            and _has_dictionaries_only(field.type, text_counts=text_counts)
        }
    sizes = {}
    for field in schema:
        if pa.types.is_nested(type_ := plain(field.type)):
            dtype_and_shape = fixed_of(type_)
            sizes[field.name] = 1 if dtype_and_shape is None else prod(dtype_and_shape[1])
    # A missing list counts as a single value.
    full = {name for name, size in sizes.items() if size > 1}
    for number, group in enumerate(chunks):
        rows = metadata.row_group(number).num_rows
        full -= {c.name for c in group if c.name in full and c.values != rows * sizes[c.name]}
    return sizes.keys() - full


def _has_dictionaries_only(type_: pa.DataType, *, text_counts: bool) -> bool:
    """Return whether a type has no other leaves than dictionaries of text or bytes, in structs.

    Text and bytes themselves are such leaves unless `text_counts`.
    """
    if pa.types.is_struct(type_):
        return all(_has_dictionaries_only(f.type, text_counts=text_counts) for f in type_)
    is_text = plain(type_) in (pa.string(), pa.binary())
    return is_text and (pa.types.is_dictionary(type_) or not text_counts)


def _all_given(field: pa.Field) -> bool:
    """Return whether a column is declared non-nullable at every depth."""
    if field.nullable:
        return False
    type_ = field.type
    return not pa.types.is_nested(type_) or all(
        _all_given(type_.field(number)) for number in range(type_.num_fields)
    )


def merge_entries(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the entry of a data set from those of its files, which must have the same columns.

    Raises:
        InvalidIndexError: If the columns differ.
    """
    specs: dict[str, str] = dict(entries[0]["columns"])
    for entry in entries[1:]:
        columns = entry["columns"]
        if columns.keys() != specs.keys():
            only = sorted(columns.keys() ^ specs.keys())
            raise InvalidIndexError(
                f"the files do not all have the same columns: some lack {', '.join(map(repr, only))}"
            )
        specs = {name: _of_both(name, spec, columns[name]) for name, spec in specs.items()}
    return {**entries[0], "columns": specs}


def _of_both(name: str, first: str, second: str) -> str:
    types = [spec.removesuffix("?") for spec in (first, second)]
    known = [type_ for type_ in types if type_ != _NULL] or types[:1]
    if len(set(known)) > 1:
        raise InvalidIndexError(
            f"the files do not all have the same columns: {name!r} is {known[0]} in some, "
            f"{known[1]} in others"
        )
    return known[0] + ("?" if "?" in first[-1] + second[-1] else "")
