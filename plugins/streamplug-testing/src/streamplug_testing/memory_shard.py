"""Shards in memory, and checks of formats that scan files; part of `FormatTests`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from streamplug_files import ScannableFormat, ScanResult, ScanSource

from streamplug.errors import DataError
from streamplug.interfaces import Format


@dataclass(frozen=True)
class MemoryShard:
    """A shard in memory.

    Attributes:
        entry: The format's keys in the index entry, after a JSON round trip.
        files: Content of its raw files by role.
        samples: Number of samples.
    """

    entry: Mapping[str, Any]
    files: Mapping[str, bytes]
    samples: int


class MemoryFile(ScanSource):
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.name, self.size = "memory", len(data)
        self._data = data

    def read(self, start: int, stop: int) -> bytes:
        assert 0 <= start <= stop
        return self._data[start:stop]


def check_scan(format_: Format, data: bytes, roles: Collection[str]) -> ScanResult:
    """Scan a file and damaged copies of it; skip the test if the format does not scan files."""
    if not isinstance(format_, ScannableFormat):
        pytest.skip("its files cannot be read without an index")
    result = format_.scan(MemoryFile(data))
    assert set(result.files) == set(roles)
    assert format_.merge_entries([result.entry, result.entry]) == result.entry
    assert not {"samples", "raw_data", "zip_data"} & set(result.entry)
    damaged = [data[:size] for size in range(0, len(data), 97)]
    damaged += [
        data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :] for at in range(0, len(data), 97)
    ]
    for part in damaged:
        try:
            assert format_.scan(MemoryFile(part)).samples >= 0
        except DataError:
            continue
    return result
