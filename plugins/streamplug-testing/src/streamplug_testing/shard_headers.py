"""Checks of formats that support range reads or multi-shard reads; part of `FormatTests`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from streamplug.errors import DataError
from streamplug.interfaces import (
    Column,
    Format,
    GatherBuffer,
    RangeReadableFormat,
    ShardFile,
    ShardHeader,
    ShardInfo,
    ShardReader,
)
from streamplug.types import ColumnValues, FileInfo
from streamplug_testing.equality import same


def info_of(samples: int, files: Mapping[str, bytes]) -> ShardInfo:
    """Return the index entry of a shard in memory."""
    raw = {role: FileInfo(role, len(data), {}) for role, data in files.items()}
    return ShardInfo(0, samples, {role: ShardFile(raw[role], None) for role in raw})


def head_of(
    format_: Format, info: ShardInfo, files: Mapping[str, bytes], columns: Sequence[Column]
) -> ShardHeader:
    """Open a shard header; skip the test if the format has none."""
    format_ = range_readable(format_)
    wanted = format_.header_range(info)
    if wanted is None:
        pytest.skip("its shards can be read only as a whole")
    start, stop = wanted
    data = files[format_.header_role]
    assert 0 <= start <= stop <= len(data)
    return format_.open_header(info, np.frombuffer(data[start:stop], np.uint8), columns)


def range_readable(format_: Format) -> RangeReadableFormat:
    """Return the format; skip the test if it does not support range reads."""
    if not isinstance(format_, RangeReadableFormat):
        pytest.skip("it is read by whole shards")
    return format_


def check_head(
    format_: Format, files: Mapping[str, bytes], reader: ShardReader, columns: Sequence[Column]
) -> None:
    """Check that range reads return the same samples as the reader of the whole shard, of seven samples."""
    info = info_of(len(reader), files)
    head, format_ = head_of(format_, info, files, columns), range_readable(format_)
    for column in columns:
        sizes = head.sizes(column)
        if sizes is not None:
            values = [reader.row(index, [column])[column.name] for index in range(len(reader))]
            assert sizes.tolist() == [len(column.encoding.encode(value)) for value in values]
    for rows in ([], [3], [6, 0, 3, 3], list(range(7))):
        likely = format_.estimate_ranges(info, np.array(rows, np.int64), columns)
        if likely is not None:
            assert likely.shape == (len(rows), 2)
            assert likely.dtype == np.int64
        for wanted in (columns, columns[::-1], columns[:1]):
            values_read = take_by_ranges(head, files["data"], rows, wanted)
            assert same(values_read, reader.take(np.array(rows, np.int64), wanted))


def take_by_ranges(
    head: ShardHeader, data: bytes, rows: Sequence[int], columns: Sequence[Column]
) -> list[ColumnValues]:
    """Read samples from a buffer that holds only their byte ranges, in reverse order."""
    wanted = np.array(rows, np.int64)
    ranges = head.byte_ranges(wanted)
    assert ranges.shape == (len(rows), 2)
    assert ranges.dtype == np.int64
    assert ((ranges[:, 0] >= 0) & (ranges[:, 0] <= ranges[:, 1])).all()
    assert (ranges[:, 1] <= len(data)).all()
    buffer, starts = b"?", np.zeros(len(rows), np.int64)
    for place in range(len(rows))[::-1]:
        starts[place] = len(buffer)
        buffer += data[ranges[place, 0] : ranges[place, 1]]
    return head.take(wanted, np.frombuffer(buffer, np.uint8), starts, columns)


def check_damaged_heads(
    format_: Format, samples: int, files: Mapping[str, bytes], columns: Sequence[Column]
) -> None:
    """Check that every truncated header is refused, and every bit flip either refused or harmless."""
    format_ = range_readable(format_)
    info, data = info_of(samples, files), files[format_.header_role]
    start, stop = format_.header_range(info) or (0, 0)
    for bit in range(8 * (stop - start)):
        head = np.frombuffer(data[start:stop], np.uint8).copy()
        head[bit // 8] ^= 1 << bit % 8
        try:
            ranges = format_.open_header(info, head, columns).byte_ranges(np.arange(samples))
        except DataError:
            continue
        assert len(ranges) == samples
    for cut in range(start, stop):
        with pytest.raises(DataError):
            format_.open_header(info, np.frombuffer(data[start:cut], np.uint8), columns)


def check_layout(
    format_: Format, shards: Sequence[tuple[bytes, ShardReader]], columns: Sequence[Column]
) -> None:
    """Check that multi-shard reads return the same samples as the reader of each shard."""
    layout = format_.multi_shard_reader(columns)
    if layout is None:
        pytest.skip("its shards are read one by one")
    layout = pickle.loads(pickle.dumps(layout))
    begins = np.cumsum([3, *(len(data) + 5 for data, _ in shards)])
    buffer = b"???" + b"?????".join(data for data, _ in shards)
    data = GatherBuffer(np.frombuffer(buffer, np.uint8))
    sizes = np.array([len(data) for data, _ in shards])
    draw = np.random.default_rng(0)
    for count in (0, 1, 40):
        which = draw.integers(0, len(shards), count)
        rows = np.array([draw.integers(len(shards[shard][1])) for shard in which], np.int64)
        where = (data, begins[which], sizes[which], rows)
        for wanted in (columns, columns[::-1], columns[:1]):
            values_read = layout.take(*where, wanted)
            for column, values in zip(wanted, values_read, strict=True):
                single = [
                    shards[shard][1].row(int(row), [column])[column.name]
                    for shard, row in zip(which, rows)
                ]
                assert same(list(column.encoding.unbatch(values)), single)
                located = layout.values(*where, column)
                if located is not None:
                    stored = [memoryview(value) for value in data.slices(*located)]
                    assert same([column.encoding.decode(value) for value in stored], single)
            parts = [slice(0, 1), slice(1, 25), slice(25, 40)][: count // 10]
            for part, values_read_lazily in zip(
                parts, layout.take_parts(*where, wanted, parts=parts), strict=True
            ):
                for column, whole, values in zip(
                    wanted, values_read, values_read_lazily, strict=True
                ):
                    expected = list(column.encoding.unbatch(whole))[part]
                    assert same(list(column.encoding.unbatch(values)), expected)
    last = np.array([len(reader) - 1 for _, reader in shards])
    full = np.flatnonzero(last >= 0)
    with pytest.raises(Exception):  # noqa: B017, PT011 - any error will do for a truncated file
        layout.take(data, begins[full], sizes[full] - 1, last[full], columns)
