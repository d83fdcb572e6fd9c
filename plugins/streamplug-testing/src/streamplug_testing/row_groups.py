"""Checks of formats whose shards are read by row groups; part of `FormatTests`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from streamplug_ranges import RangeFile, RowGroupFormat, RowGroupReader

from streamplug.errors import DataError
from streamplug.interfaces import Column, Format, ShardReader
from streamplug.types import Bytes1D, Int64
from streamplug_testing.equality import same
from streamplug_testing.shard_headers import info_of


class MemoryRangeFile(RangeFile):
    """A file in memory.

    Attributes:
        ranges: What was read, as start and stop.
    """

    def __init__(self, data: bytes, usual_header_bytes: int = 0) -> None:
        self.size, self.usual_header_bytes = len(data), usual_header_bytes
        self.ranges: list[tuple[int, int]] = []
        self._data = np.frombuffer(data, np.uint8)

    def read(self, ranges: Int64) -> list[Bytes1D]:
        assert ranges.dtype == np.int64
        assert ((ranges[:, 0] >= 0) & (ranges[:, 0] < ranges[:, 1])).all()
        assert (ranges[:, 1] <= self.size).all()
        self.ranges += [(start, stop) for start, stop in ranges.tolist()]
        return [self._data[start:stop] for start, stop in ranges.tolist()]


def check_row_groups(
    format_: Format, files: Mapping[str, bytes], reader: ShardReader, columns: Sequence[Column]
) -> None:
    """Check that row groups have the samples of the whole shard, of seven samples; skip other formats."""
    format_, info = read_by_row_groups(format_), info_of(len(reader), files)
    for usual in (0, 1):  # a footer may take a second read
        for wanted in (columns, columns[::-1], columns[:1]):
            file = MemoryRangeFile(files["data"], usual)
            opened = format_.open_row_groups(info, file, columns)
            assert len(opened) == len(reader)
            assert 0 < opened.header_bytes <= file.size
            for rows in ([], [3], [6, 0, 3, 3], list(range(7))):
                check_rows(opened, reader, file, np.array(rows, np.int64), wanted)


def check_rows(
    opened: RowGroupReader,
    reader: ShardReader,
    file: MemoryRangeFile,
    rows: Int64,
    columns: Sequence[Column],
) -> None:
    """Check that reading rows reads what `byte_ranges` tells, and nothing of what is decoded."""
    groups, file.ranges = opened.groups_of(rows), []
    assert len(set(groups)) == len(groups) <= opened.num_groups
    missing = [group for group in groups if not opened.has_decoded(group, columns)]
    told = [tuple(r) for group in missing for r in opened.byte_ranges(group, columns).tolist()]
    assert same(opened.take(rows, columns), reader.take(rows, columns))
    for start, stop in file.ranges:
        assert any(first <= start and stop <= last for first, last in told)


def check_damaged_row_groups(
    format_: Format, samples: int, files: Mapping[str, bytes], columns: Sequence[Column]
) -> None:
    """Check that every truncated file is refused, and every changed byte either refused or harmless."""
    format_, info, data = read_by_row_groups(format_), info_of(samples, files), files["data"]
    rows = np.arange(samples)
    for at in range(0, len(data), 31):
        changed = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            opened = format_.open_row_groups(info, MemoryRangeFile(changed, 1), columns)
            assert len(opened.take(rows, columns)) == len(columns)
        except DataError:
            continue
    for size in range(0, len(data), 97):
        with pytest.raises(DataError):
            format_.open_row_groups(info, MemoryRangeFile(data[:size], 1), columns)


def read_by_row_groups(format_: Format) -> RowGroupFormat:
    """Return the format; skip the test if it has no row groups."""
    if not isinstance(format_, RowGroupFormat):
        pytest.skip("its samples are not stored in row groups")
    return format_
