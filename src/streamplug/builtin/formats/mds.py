"""MDS, the shard format of mosaicml-streaming.

A shard contains, with all integers little-endian::

    uint32            N, the number of samples
    uint32[N + 1]     offset of each sample in the file, and the file's size
    JSON              the schema, as in the index, for recreating a lost index
    samples           back to back

A sample contains a uint32 length for each column of variable size, then the bytes of each column. Columns
are sorted by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from struct import Struct
from typing import Any

import numpy as np

from streamplug.builtin.formats.mds_layout import MDSLayout
from streamplug.builtin.formats.mds_reader import MDSHead, MDSReader, head_size
from streamplug.errors import EncodeError, EncodeTypeError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    EncodedRows,
    Encoding,
    MultiShardReader,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
    ShardWriter,
    WritableFormat,
    WriteSettings,
)
from streamplug.plugin_kit import check_names, count_of, encoded_bytes
from streamplug.types import Buffer, Bytes1D, Int64

_U32 = np.dtype("<u4")
_MAX_FILE = (1 << 32) - 1
_COPIED = 1 << 10
"""Bytes of a row up to which its values are joined into one piece."""


class MDS(WritableFormat, RangeReadableFormat):
    """The MDS format: parses its index entries, opens and writes its shards."""

    suffix = "mds"
    _shared_layout: MDSLayout | None = None

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        names, specs = (_strings(entry, key) for key in ("column_names", "column_encodings"))
        sizes = entry.get("column_sizes")
        if not isinstance(sizes, list) or not len(names) == len(specs) == len(sizes):
            raise InvalidIndexError(
                "column_names, column_encodings and column_sizes must be lists of one length"
            )
        if len(set(names)) != len(names) or not names:
            raise InvalidIndexError(f"column_names must be distinct and at least one, got {names}")
        columns = tuple(Column(n, s, make_encoding(n, s)) for n, s in zip(names, specs))
        for column, size in zip(columns, sizes):
            if size != column.encoding.size or isinstance(size, bool):
                raise InvalidIndexError(
                    f"column {column.name!r}: column_sizes says {size!r}, but {column.spec!r} has "
                    f"size {column.encoding.size!r}"
                )
        return columns

    def check(self, samples: int, role: str, size: int) -> None:
        if head_size(samples) > size or size > _MAX_FILE:
            raise InvalidIndexError(f"{samples} samples cannot lie in a file of {size} bytes")

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        return MDSReader(shard.samples, files["data"], columns)

    def multi_shard_reader(self, columns: Sequence[Column]) -> MultiShardReader:
        return MDSLayout(columns)

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, head_size(shard.samples)

    def estimate_ranges(
        self, shard: ShardInfo, rows: Int64, columns: Sequence[Column]
    ) -> Int64 | None:
        sizes = [column.encoding.size for column in columns]
        if None in sizes:
            return None
        # From the end of the file, as the length of the schema in front of the samples is unknown.
        size = sum(column_size or 0 for column_size in sizes)
        starts = shard.files["data"].raw.bytes - (shard.samples - rows) * size
        return np.stack([starts, starts + size], axis=1)

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        layout = self._shared_layout
        if layout is None or layout.of is not columns:
            # Made once for a schema: it plans the columns of a batch, which takes longer than small batches.
            layout = self._shared_layout = MDSLayout(columns)
        return MDSHead(shard.samples, head, shard.files["data"].raw.bytes, layout)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_shared_layout"}

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        return MDSShardWriter(columns, settings)


def _strings(entry: Mapping[str, Any], key: str) -> list[str]:
    value = entry.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidIndexError(f"{key} must be a list of strings, got {value!r:.60}")
    return value


class MDSShardWriter(ShardWriter):
    """Lays out shards of one data set."""

    row_overhead = 4
    max_size = _MAX_FILE

    def __init__(self, columns: Sequence[Column], settings: WriteSettings) -> None:
        columns = sorted(columns, key=lambda column: column.name)
        self._entry = {
            "column_encodings": [column.spec for column in columns],
            "column_names": [column.name for column in columns],
            "column_sizes": [column.encoding.size for column in columns],
            "compression": settings.compression,
            "format": "mds",
            "hashes": list(settings.hashes),
            "size_limit": settings.size_limit,
            "version": 2,
        }
        self._config = json.dumps(self._entry, sort_keys=True).encode()
        self.base_size = 8 + len(self._config)
        self._columns = columns
        self._names = {column.name for column in columns}
        self._plan = [(c.name, c.encoding.encode, c.encoding.size) for c in columns]
        self._heads = Struct(f"<{sum(c.encoding.size is None for c in columns)}I")
        self._rest = self._heads.size + sum(c.encoding.size or 0 for c in columns)

    def entry(self) -> dict[str, Any]:
        return dict(self._entry)

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        return b"".join(self.encode_pieces(sample)[0])

    def encode_pieces(self, sample: Mapping[str, Any]) -> tuple[Sequence[Buffer], int]:
        if type(sample) is not dict or len(sample) != len(self._plan):
            check_names(sample, self._names)
        heads: list[int] = []
        parts: list[bytes] = [b""] if self._heads.size else []
        total = self._rest
        name = ""
        try:
            for name, encode, size in self._plan:
                body = encode(sample[name])
                if size is None:
                    body = body if type(body) is bytes else encoded_bytes(body)
                    length = len(body)
                    heads.append(length)
                    total += length
                elif len(body) != size:
                    raise EncodeError(f"takes values of {size} bytes, got {len(body)}")
                parts.append(body)
        except EncodeError as error:
            raise type(error)(f"column {name!r}: {error}") from error.__cause__
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise _unencodable(name, sample[name], error) from error
        except KeyError:
            check_names(sample, self._names)
            raise
        if heads:
            if total > _MAX_FILE and max(heads) > _MAX_FILE:
                raise EncodeError(
                    f"a value of {max(heads)} bytes: MDS holds values below 4 GiB only"
                )
            parts[0] = self._heads.pack(*heads)
        return (parts if total > _COPIED else (b"".join(parts),)), total

    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[EncodedRows, Int64]:
        count = count_of(columns, self._names)
        encoded = [
            self._encode_column(column, columns[column.name], count) for column in self._columns
        ]
        fixed = [column.encoding.size for column in self._columns]
        if self._heads.size:
            return _interleave(encoded, fixed, count)
        bodies = [body.reshape(count, size) for body, size in zip(encoded, fixed)]
        rows = np.concatenate(bodies, axis=1) if len(bodies) > 1 else bodies[0]
        return rows.reshape(-1).data, np.full(count, rows.shape[1], np.int64)

    def _encode_column(self, column: Column, values: Any, count: int) -> Any:
        size = column.encoding.size
        try:
            encoded = column.encoding.encode_batch(values)
            if size is None:
                encoded = [body if type(body) is bytes else encoded_bytes(body) for body in encoded]
        except EncodeError as error:
            raise type(error)(f"column {column.name!r}: {error}") from error.__cause__
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise _unencodable(column.name, values, error) from error
        if not isinstance(encoded, np.ndarray):
            encoded = list(encoded)
            if len(encoded) != count:
                raise EncodeError(
                    f"column {column.name!r}: encode_batch of {type(column.encoding).__name__} returned "
                    f"{len(encoded)} values for {count}"
                )
        if size is None:
            return encoded
        fits = True
        if isinstance(encoded, list):
            fits = {*map(len, encoded)} <= {size}  # else longer and shorter ones might add up
            encoded = np.frombuffer(b"".join(encoded), np.uint8)
        if not fits or encoded.size != count * size:
            raise EncodeError(f"column {column.name!r}: takes values of {size} bytes each")
        if isinstance(values, np.ndarray) and np.may_share_memory(encoded, values):
            return encoded.copy()  # it is buffered, and the caller may change the values
        return encoded

    def assemble(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        start = 4 + 4 * (len(sizes) + 1) + len(self._config)
        offsets = np.full(len(sizes) + 1, start, np.int64)
        offsets[1:] += np.cumsum(sizes)
        header = np.concatenate([[len(sizes)], offsets]).astype(_U32)
        return {"data": [header.tobytes(), self._config, *parts]}


def _interleave(
    encoded: Sequence[Any], fixed: Sequence[int | None], count: int
) -> tuple[EncodedRows, Int64]:
    """Return the rows of a batch, each with its lengths in front, from its encoded columns."""
    lengths = np.array(
        [list(map(len, body)) for body, size in zip(encoded, fixed) if size is None],
        np.int64,
    )
    if lengths.max(initial=0) > _MAX_FILE:
        raise EncodeError("MDS holds values below 4 GiB only")
    bodies: list[Any] = [_cut(np.ascontiguousarray(lengths.T.astype(_U32)).view(np.uint8), count)]
    bodies += [body if size is None else _cut(body, count) for body, size in zip(encoded, fixed)]
    sizes = lengths.sum(0) + 4 * len(lengths) + sum(size or 0 for size in fixed)
    rows = zip(*bodies)
    if sizes.sum() > _COPIED * count:
        return list(rows), sizes
    return b"".join(chain.from_iterable(rows)), sizes


def _cut(rows: Bytes1D, count: int) -> list[memoryview]:
    """Split back-to-back rows of equal size."""
    flat = memoryview(rows.reshape(-1))  # type: ignore[arg-type]  # an array is a buffer
    size = len(flat) // count if count else 0
    return [flat[start : start + size] for start in range(0, count * size, size or 1)]


def _unencodable(column: str, value: object, error: Exception) -> EncodeTypeError:
    return EncodeTypeError(
        f"column {column!r}: cannot encode {type(value).__name__}: {type(error).__name__}: {error}"
    )
