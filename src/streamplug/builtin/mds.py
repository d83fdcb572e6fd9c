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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain
from struct import Struct
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from streamplug.errors import (
    CorruptShardError,
    EncodeError,
    InvalidIndexError,
    StreamplugError,
)
from streamplug.interfaces import (
    Column,
    EncodedRows,
    Encoding,
    GatherBuffer,
    MultiShardReader,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
    ShardWriter,
    VectorColumn,
    WritableFormat,
    WriteSettings,
)
from streamplug.plugin_kit import (
    check_names,
    count_of,
    decode_error,
    encoded_bytes,
    names_and_specs,
    unencodable_error,
)
from streamplug.types import Buffer, Bytes1D, ColumnValues, Int64, Sample

_U32 = np.dtype("<u4")

_MAX_MERGED_VALUE_BYTES = 64
"""Size of a value up to which copying it twice is faster than one gather per column."""

_MAX_DECODED_BYTES = 1 << 20
"""Bytes to decode at once, so that the values are still in the CPU caches when used, and memory is reused."""

_OBJECT_BYTES = 64
"""Approximate overhead of a Python object in bytes."""

_CODE = """\
def row(index):
    try:
        p0, stop = bounds[index], bounds[index + 1]
        {lengths} = heads(view, p0)
        {places}
        if {last} + rest != stop:
            raise ValueError
        return {{{cells}}}
    except Exception:
        return with_care(index)
"""

_MAX_FILE = (1 << 32) - 1
_COPIED = 1 << 10
"""Bytes of a row up to which its values are joined into one piece."""


class LengthError(Exception):
    """A sample has more or fewer bytes than its columns; `at` is its position among those requested."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class ColumnError(Exception):
    """The values of a column cannot be decoded, for the reason in ``__cause__``."""

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self.column = column


class Located(NamedTuple):
    """Locations of samples in a buffer.

    Attributes:
        begins: Offset of the first column, and the end of each column of variable size, shape
            ``[variable + 1, n]``.
        sizes: Bytes of the values of variable size, shape ``[variable, n]``.
    """

    begins: Int64
    sizes: Int64

    def part(self, some: slice) -> Located:
        """Return the locations of a slice of the samples."""
        return Located(self.begins[:, some], self.sizes[:, some])


@dataclass(frozen=True)
class _Run:
    """Adjacent columns of small plain values, copied as one, or a single column of any kind.

    Attributes:
        after: Number of columns of variable size before it.
        offset: Bytes between the last of these and the run.
        columns: Its columns.
        at: Positions of these among the requested columns.
    """

    after: int
    offset: int
    columns: list[Column]
    at: list[int]

    @cached_property
    def dtype(self) -> np.dtype[Any] | None:
        """Return a structured dtype of the columns, or that of the only one; None if that is not plain."""
        dtypes = [column.encoding.dtype for column in self.columns]
        if len(dtypes) == 1:
            return dtypes[0] if _is_plain(self.columns[0].encoding) else None
        return np.dtype([(str(n), dtype) for n, dtype in enumerate(dtypes)])


class MDSLayout(MultiShardReader):
    """The layout of a sample's columns.

    Attributes:
        of: The columns as they were given, to recognize them.
        columns: All columns, in stored order.
        fixed: Bytes of each column's values, or None.
        lengths: Bytes of the lengths at the start of a sample.
        rest: Bytes of a sample besides its values of variable size.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.of, self.columns = columns, tuple(columns)
        self.fixed = [column.encoding.size for column in columns]
        self.lengths = _U32.itemsize * self.fixed.count(None)
        self.rest = self.lengths + sum(size or 0 for size in self.fixed)
        self._places: dict[str, tuple[int, int]] = {}
        after = offset = 0
        for column, size in zip(self.columns, self.fixed):
            self._places[column.name] = (after, offset)
            after, offset = (after + 1, 0) if size is None else (after, offset + size)
        self._planned: tuple[Sequence[Column], list[_Run]] = ((), [])

    def take(
        self,
        data: GatherBuffer,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        return self.decoded(data, self._in_shards(data, shards, sizes, rows), columns)

    def take_parts(
        self,
        data: GatherBuffer,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
        *,
        parts: Sequence[slice],
    ) -> Iterator[list[ColumnValues]]:
        located = self._in_shards(data, shards, sizes, rows)
        nbytes = sum(self._nbytes(located, column) for column in columns)
        num_parts = max(_MAX_DECODED_BYTES * len(parts) // max(nbytes, 1), 1)
        for first in range(0, len(parts), num_parts):
            some = parts[first : first + num_parts]
            start = some[0].start
            values = self.decoded(data, located.part(slice(start, some[-1].stop)), columns)
            if len(some) == 1:
                yield values
                continue
            for part in some:
                yield [column[part.start - start : part.stop - start] for column in values]

    def values(
        self, data: GatherBuffer, shards: Int64, sizes: Int64, rows: Int64, column: Column
    ) -> tuple[Int64, Int64]:
        return self.place(self._in_shards(data, shards, sizes, rows), column)

    def _in_shards(self, data: GatherBuffer, shards: Int64, sizes: Int64, rows: Int64) -> Located:
        bounds = data.gather(shards + 4 * (rows + 1), 8).view(_U32).reshape(-1, 2).astype(np.int64)
        lengths = bounds[:, 1] - bounds[:, 0]
        # Checked when opened, but the file may change while it is mapped; stay within its bounds.
        wrong = (bounds[:, 1] > sizes) | (lengths < self.rest)
        if wrong.any():
            raise LengthError(int(wrong.argmax()))
        return self.located(data, shards + bounds[:, 0], lengths)

    def located(self, data: GatherBuffer, starts: Int64, lengths: Int64) -> Located:
        """Locate the columns of samples; raise `LengthError` if a sample's size is wrong.

        Args:
            data: Buffer of the samples.
            starts: Offset of each sample, shape ``[n]``.
            lengths: Bytes of each sample, shape ``[n]``.
        """
        variable = self.lengths // _U32.itemsize
        heads = data.gather(starts, self.lengths).view(_U32).reshape(len(starts), variable)
        sizes = heads.T.astype(np.int64, order="C")
        begins = np.empty((variable + 1, len(starts)), np.int64)
        begins[0] = starts + self.lengths
        after, fixed = 0, 0
        for size in self.fixed:
            if size is None:
                np.add(begins[after], sizes[after] + fixed, out=begins[after + 1])
                after, fixed = after + 1, 0
            else:
                fixed += size
        wrong = begins[-1] + fixed != starts + lengths
        if wrong.any():
            raise LengthError(int(wrong.argmax()))
        return Located(begins, sizes)

    def place(self, located: Located, column: Column) -> tuple[Int64, Int64]:
        """Return start and size of the values of a column, each of shape ``[n]``."""
        after, offset = self._places[column.name]
        begins, size = located.begins[after] + offset, column.encoding.size
        return begins, located.sizes[after] if size is None else np.full(
            len(begins), size, np.int64
        )

    def _nbytes(self, located: Located, column: Column) -> int:
        """Return the approximate memory of the decoded values of a column."""
        encoding, count = column.encoding, len(located.begins[0])
        if encoding.size is not None:
            stored = encoding.size * count
        else:
            stored = int(located.sizes[self._places[column.name][0]].sum())
        more = 0 if encoding.dtype is not None else max(_OBJECT_BYTES, encoding.decoded_bytes or 0)
        return stored + more * count

    def decoded(
        self, data: GatherBuffer, located: Located, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Return the values of each column; raise `ColumnError` if one cannot be decoded."""
        decoded_columns: list[ColumnValues] = [[]] * len(columns)
        for run in self._runs(columns):
            dtype = run.dtype
            if dtype is None:
                decoded_columns[run.at[0]] = self._column(data, located, run.columns[0])
                continue
            begins = located.begins[run.after] + run.offset
            values = data.array(begins, dtype)
            if len(run.at) == 1:
                decoded_columns[run.at[0]] = values
            else:
                for at, name in zip(run.at, dtype.names or ()):
                    decoded_columns[at] = values[name].copy()
        return decoded_columns

    def _column(self, data: GatherBuffer, located: Located, column: Column) -> ColumnValues:
        try:
            return column.encoding.decode_batch(data, *self.place(located, column))
        except Exception as error:
            raise ColumnError(column) from error

    def _runs(self, columns: Sequence[Column]) -> list[_Run]:
        planned, runs = self._planned
        if planned is not columns:
            runs = self._find_runs(columns)
            self._planned = (columns, runs)
        return runs

    def _find_runs(self, columns: Sequence[Column]) -> list[_Run]:
        place_of = {column.name: at for at, column in enumerate(columns)}
        runs: list[_Run] = []
        open_ = False  # whether the last run may be extended
        end = (0, 0)  # `after` and the end of the last run
        for stored in self.columns:
            at = place_of.get(stored.name)
            if at is None:
                continue
            column, (after, offset) = columns[at], self._places[stored.name]
            small = (
                _is_plain(column.encoding)
                and (column.encoding.size or 0) <= _MAX_MERGED_VALUE_BYTES
            )
            if open_ and small and (after, offset) == end:
                runs[-1].columns.append(column)
                runs[-1].at.append(at)
            else:
                runs.append(_Run(after, offset, [column], [at]))
            open_, end = small, (after, offset + (column.encoding.size or 0))
        return runs


def _is_plain(encoding: Encoding) -> bool:
    """Return whether the values are plain memory, and the encoding does not override `decode_batch`."""
    return encoding.dtype is not None and type(encoding).decode_batch is Encoding.decode_batch


def row_reader(
    data: Bytes1D,
    bounds: memoryview,
    layout: MDSLayout,
    columns: Sequence[Column],
    with_care: Callable[[int], Sample],
) -> Callable[[int], Sample]:
    """Return a function that decodes a sample by its number in the shard.

    It is generated for its columns, as `dataclasses` does: a loop over them takes twice the time.

    Args:
        data: The file.
        bounds: Start of each sample, and end of the last, shape ``[samples + 1]``.
        layout: Layout of the columns in a sample.
        columns: Columns to decode.
        with_care: Called if the generated function fails, to raise an error that names the value.
    """
    heads = Struct(f"<{layout.fixed.count(None)}I").unpack_from
    names = {column.name for column in columns}
    known: dict[str, Any] = {"bounds": bounds, "heads": heads, "rest": layout.rest}
    known |= {"view": memoryview(data), "with_care": with_care}  # type: ignore[arg-type]  # an array is a buffer
    # A value starts `before` bytes after p: the sample's start plus all variable sizes in front of it.
    cells, p, before = [], 0, layout.lengths
    for number, (column, size) in enumerate(zip(layout.columns, layout.fixed)):
        place = f"p{p}"
        if size is None:
            p += 1
            place += f", p{p}"
        if column.name in names:
            known[f"name{number}"] = column.name
            known[f"decode{number}"] = column.encoding.bound_decoder(data[before:])
            cells.append(f"name{number}: decode{number}({place})")
        before += size or 0
    exec(_compiled(p, ", ".join(cells)), known)  # noqa: S102 - numbered names, none from the data
    # Removed from its own globals: the reference cycle would keep the file open.
    row: Callable[[int], Sample] = known.pop("row")
    return row


@lru_cache(256)
def _compiled(lengths: int, cells: str) -> CodeType:
    code = _CODE.format(
        lengths="".join(f"n{n}, " for n in range(lengths)) or "()",
        places="; ".join(f"p{n + 1} = p{n} + n{n}" for n in range(lengths)) or "pass",
        last=f"p{lengths}",
        cells=cells,
    )
    return compile(code, "<a row of MDS>", "exec")


def head_size(samples: int) -> int:
    """Return the bytes of a shard's header."""
    return 4 * (samples + 2)


class MDSHead(ShardHeader):
    """The header of one shard.

    Attributes:
        offsets: Start of each sample, and end of the last, uint32, shape ``[samples + 1]``.
        layout: Layout of the columns in a sample.
    """

    reads_parts = True

    def __init__(self, samples: int, head: Bytes1D, size: int, layout: MDSLayout) -> None:
        """Validate the header; raise `CorruptShardError` if it contradicts the index, the file or itself.

        Args:
            samples: Number of samples in the index.
            head: The file, or at least its first `head_size` bytes.
            size: Bytes of the file.
            layout: Layout of the columns, which the shards of a schema may share.
        """
        self.offsets = _offsets(head, samples, size)
        self.layout = layout
        lengths = np.diff(self.offsets)
        short = lengths < layout.rest if layout.lengths else lengths != layout.rest
        if short.any():
            raise self.corrupt(int(short.argmax()))

    def byte_ranges(self, rows: Int64) -> Int64:
        ranges = np.empty((len(rows), 2), np.int64)
        ranges[:, 0], ranges[:, 1] = self.offsets[rows], self.offsets[rows + 1]
        return ranges

    def sizes(self, column: Column) -> Int64 | None:
        if column.encoding.size is not None:
            return np.full(len(self.offsets) - 1, column.encoding.size, np.int64)
        if self.layout.fixed.count(None) > 1:  # the single sizes are stored in the samples
            return None
        return np.diff(self.offsets).astype(np.int64) - self.layout.rest

    def take(
        self,
        rows: Int64,
        data: Bytes1D | GatherBuffer,
        starts: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        lengths = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)
        layout, buffer = self.layout, data if isinstance(data, GatherBuffer) else GatherBuffer(data)
        try:
            located = layout.located(buffer, starts, lengths)
        except LengthError as error:
            raise self.corrupt(int(rows[error.at])) from None
        try:
            return layout.decoded(buffer, located, columns)
        except ColumnError as failed:
            column, cause = failed.column, failed.__cause__
        # Not in the `except` block, where `failed` would become the context of its own cause.
        begins, sizes = layout.place(located, column)
        values = (buffer.values if column.encoding.partial else buffer.slices)(begins, sizes)
        raise decode_error(column, rows, values, cause) from cause

    def corrupt(self, index: int) -> CorruptShardError:
        """Return the error for a sample of wrong length."""
        start, stop = self.offsets[index : index + 2].tolist()
        return CorruptShardError(
            f"sample {index}: its {stop - start} bytes do not hold the columns "
            f"{', '.join(c.name for c in self.layout.columns)}"
        )


class MDSReader(ShardReader):
    """Reads one shard from its bytes."""

    def __init__(self, samples: int, data: Bytes1D, columns: Sequence[Column]) -> None:
        """Validate the header as `MDSHead` does."""
        self._data = data
        self._head = MDSHead(samples, data, len(data), MDSLayout(columns))
        self._bounds = memoryview(self._head.offsets)  # type: ignore[arg-type]  # an array is a buffer

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def byte_range(self, index: int) -> tuple[int, int]:
        return self._bounds[index], self._bounds[index + 1]

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        return self.row_reader(columns)(index)

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        with_care = partial(self._with_care, columns=columns)
        return row_reader(self._data, self._bounds, self._head.layout, columns, with_care)

    def _with_care(self, index: int, columns: Sequence[Column]) -> Sample:
        """Decode a sample as `take` does, whose errors name sample and column."""
        names = [column.name for column in self._head.layout.columns]
        return super().row(index, sorted(columns, key=lambda column: names.index(column.name)))

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._head.offsets[rows].astype(np.int64)
        return self._head.take(rows, self._data, starts, columns)


def _offsets(data: Bytes1D, samples: int, size: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    header = head_size(samples)
    if len(data) < header:
        raise CorruptShardError(f"{len(data)} bytes cannot hold the {samples} samples of the index")
    count = int(data[:4].view(_U32)[0])
    if count != samples:
        raise CorruptShardError(f"it holds {count} samples, the index says {samples}")
    offsets = data[4:header].view(_U32)
    if offsets[0] < header or offsets[-1] != size:
        raise CorruptShardError(
            f"its samples span bytes {offsets[0]} to {offsets[-1]} of a file of {size} bytes"
        )
    if samples and (wrong := offsets[1:] < offsets[:-1]).any():
        raise CorruptShardError(f"sample {int(wrong.argmax())} ends before it begins")
    return offsets


class MDS(WritableFormat, RangeReadableFormat):
    """The MDS format: parses its index entries, opens and writes its shards."""

    suffix = "mds"
    _shared_layout: MDSLayout | None = None

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        names, specs = names_and_specs(entry)
        sizes = entry.get("column_sizes")
        if not isinstance(sizes, list) or len(sizes) != len(names):
            raise InvalidIndexError(
                f"column_sizes must be a list of {len(names)} sizes, got {sizes!r:.80}"
            )
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
        varying = [column for column in columns if column.encoding.size is None]
        # By column, its place among the sizes at the start of a row.
        self._sized = {c.name: n for n, c in enumerate(varying) if _has_integers(c.encoding)}
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
                body = body if type(body) is bytes else encoded_bytes(body)
                if size is None:
                    length = len(body)
                    heads.append(length)
                    total += length
                elif len(body) != size:
                    raise EncodeError(f"takes values of {size} bytes, got {len(body)}")
                parts.append(body)
        except Exception as error:
            check_names(sample, self._names)
            raise unencodable_error(name, sample[name], error) from error
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
        except Exception as error:
            raise _batch_error(column, values, error) from error
        source = f"column {column.name!r}: encode_batch of {type(column.encoding).__name__}"
        if not isinstance(encoded, np.ndarray):
            encoded = list(encoded)
            if len(encoded) != count:
                raise EncodeError(f"{source} returned {len(encoded)} values for {count}")
        elif encoded.dtype != np.uint8:  # counted in bytes below, and joined with other columns
            raise EncodeError(f"{source} returned {encoded.dtype}; expected uint8")
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

    def value_sizes(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Int64]:
        if not self._sized:
            return {}
        starts, width = np.cumsum(sizes) - sizes, self._heads.size
        heads = np.empty((len(sizes), width), np.uint8)
        row = begin = 0
        for part in parts:  # a row's sizes are in one part
            end = begin + len(part)
            stop = int(np.searchsorted(starts, end))
            if stop > row:
                buffer = GatherBuffer(np.frombuffer(part, np.uint8))
                heads[row:stop] = buffer.gather(starts[row:stop] - begin, width).reshape(-1, width)
            row, begin = stop, end
        lengths = heads.view(_U32).astype(np.int64)
        return {name: lengths[:, place] for name, place in self._sized.items()}

    def assemble(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        start = 4 + 4 * (len(sizes) + 1) + len(self._config)
        offsets = np.full(len(sizes) + 1, start, np.int64)
        offsets[1:] += np.cumsum(sizes)
        header = np.concatenate([[len(sizes)], offsets]).astype(_U32)
        return {"data": [header.tobytes(), self._config, *parts]}


def _batch_error(column: Column, values: Any, error: Exception) -> StreamplugError:
    """Return the error for the values of a batch; it names the first that is refused with this error."""
    for number, value in enumerate(values):
        try:
            encoded_bytes(column.encoding.encode(value))
        except Exception as single:  # noqa: BLE001 - encodings can raise anything
            if type(single) is type(error) and str(single) == str(error):
                named = unencodable_error(column.name, value, single)
                return type(named)(f"{named} (value {number} of the batch)")
    return unencodable_error(column.name, values, error)


def _has_integers(encoding: Encoding) -> bool:
    """Return whether values are arrays of whole numbers, such as token ids."""
    item = encoding.item
    return isinstance(encoding, VectorColumn) and item is not None and item.kind in "iub"


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
    """Split back-to-back rows of equal size, which may be 0."""
    flat = memoryview(rows.reshape(-1))  # type: ignore[arg-type]  # an array is a buffer
    size = len(flat) // max(count, 1)
    return [flat[row * size : (row + 1) * size] for row in range(count)]
