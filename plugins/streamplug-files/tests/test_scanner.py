"""Sources that formats scan: local files, and remote ones that are read by ranges."""

from __future__ import annotations

import re

import pytest
from streamplug_files import scanner

from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import CorruptShardError, PluginError

CONTENT = bytes(range(100))


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "k").write_bytes(CONTENT)
    return LocalStorage(str(tmp_path))


@pytest.mark.parametrize(
    "make",
    [
        lambda storage: scanner._MappedSource(CONTENT, storage, "k", 0),
        lambda storage: scanner._RangeSource(len(CONTENT), storage, "k", 0),
    ],
)
def test_reading_beyond_the_end_is_alike_for_local_and_remote_files(storage, make):
    for start, stop in ((98, 104), (100, 101), (103, 105), (5, 5), (10, 20)):
        assert make(storage).read(start, stop) == CONTENT[start:stop]
    assert list(make(storage).read_blocks([98, 103], 4)) == [CONTENT[98:], b""]


def test_a_range_that_was_cut_in_transit_is_read_again(storage, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    cut = [True]
    whole = LocalStorage.read_ranges

    def read_ranges(self, key, ranges):
        parts = whole(self, key, ranges)
        return [part[:-1] for part in parts] if cut and cut.pop() else parts

    monkeypatch.setattr(LocalStorage, "read_ranges", read_ranges)
    source = scanner._RangeSource(len(CONTENT), storage, "k", 1)
    assert source.read(10, 20) == CONTENT[10:20]
    cut.append(True)
    assert source.read_blocks([10, 30], 4) == [CONTENT[10:14], CONTENT[30:34]]


def test_a_storage_that_returns_too_few_parts_is_named(storage, monkeypatch):
    monkeypatch.setattr(LocalStorage, "read_ranges", lambda *_: [])
    source = scanner._RangeSource(len(CONTENT), storage, "k", 0)
    with pytest.raises(PluginError, match="returned 0 parts where 2 were asked for"):
        source.read_blocks([10, 30], 4)


def test_a_remote_file_that_became_shorter_is_an_error(storage):
    source = scanner._RangeSource(200, storage, "k", 0)
    with pytest.raises(
        CorruptShardError,
        match=re.escape("got 90 bytes from 10 on where 190 were asked for; it was cut"),
    ):
        source.read(10, 20)
