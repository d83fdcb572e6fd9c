"""Fetching and parsing the index of a data set."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from streamplug_testing.fakes import CountingStorage, FlakyStorage

from streamplug import MDSWriter, StreamingDataset
from streamplug.builtin.local_storage import LocalStorage
from streamplug.cache.identity import claim_directory
from streamplug.errors import CacheConflictError, StorageError, TruncatedIndexError
from streamplug.index import INDEX_NAME, Index
from streamplug.source import index_source as indexes


def write(folder: Path, count: int = 40) -> Path:
    with MDSWriter(columns={"id": "int"}, out=folder, size_limit=250) as writer:
        writer.write_batch({"id": np.arange(count)})
    return folder


def open_index(storage, directory: Path, retries: int = 0) -> Index:
    index, data = indexes.read_index(storage, retries)
    claim_directory(directory, storage.url, data)
    return index


@pytest.fixture
def folder(tmp_path) -> Path:
    return write(tmp_path / "set")


@pytest.mark.parametrize("short", [1, 10**6])
def test_a_short_index_comes_in_one_request(folder, tmp_path, monkeypatch, short):
    monkeypatch.setattr(indexes, "_FIRST_READ_BYTES", short)
    storage = CountingStorage(LocalStorage(str(folder)))
    index = open_index(storage, tmp_path / "cache")
    assert index.size == 40
    assert (tmp_path / "cache" / INDEX_NAME).read_bytes() == (folder / INDEX_NAME).read_bytes()
    assert storage.counts == ({"read_range": 1} if short > 1 else {"read_range": 1, "read": 1})


def test_an_index_is_read_where_parts_cannot_be(folder, tmp_path):
    storage = FlakyStorage(
        LocalStorage(str(folder)), fail=lambda name, key: name == "read_range", error=StorageError
    )
    index = open_index(storage, tmp_path / "cache")
    assert index.size == 40


@pytest.mark.parametrize("remote", [False, True])
def test_other_files_beside_an_index_are_ignored(folder, tmp_path, remote, caplog):
    (folder / "index.streamplug").write_bytes(b"\x89splugix\n of another version")
    places = {"remote": str(folder), "local": str(tmp_path / "cache")}
    dataset = StreamingDataset(**places if remote else {"local": str(folder)}, batch_size=4)
    assert [row["id"] for row in dataset] == list(range(40))
    assert not (tmp_path / "cache" / "index.streamplug").exists()
    assert not caplog.messages


def test_a_cache_of_another_set_is_refused(folder, tmp_path):
    def open_cached(remote: Path) -> StreamingDataset:
        return StreamingDataset(remote=str(remote), local=str(tmp_path / "cache"), batch_size=4)

    open_cached(folder)
    shutil.rmtree(folder)
    write(folder, 60)
    with pytest.raises(CacheConflictError, match="was written again since"):
        open_cached(folder)
    other = write(tmp_path / "other", 10)
    with pytest.raises(CacheConflictError, match="is the cache of"):
        open_cached(other)


@pytest.mark.parametrize("first_read_bytes", [1, 10**6])
@pytest.mark.parametrize("cached", [False, True])
def test_an_index_that_was_cut_short_is_read_again(
    folder, tmp_path, monkeypatch, first_read_bytes, cached
):
    monkeypatch.setattr(indexes, "_FIRST_READ_BYTES", first_read_bytes)
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    storage = LocalStorage(str(folder))
    cuts = [100, 100]

    def cut(data: bytes) -> bytes:
        return data[: cuts.pop()] if cuts and len(data) > 1 else data

    for name in ("read", "read_range"):
        whole = getattr(storage, name)
        monkeypatch.setattr(storage, name, lambda *arguments, read=whole: cut(read(*arguments)))

    def read(retries: int) -> Index:
        if not cached:
            return indexes.read_index(storage, retries)[0]
        return open_index(storage, tmp_path / "cache", retries)

    with pytest.raises(TruncatedIndexError, match=r"whole, valid JSON .*gave up after 2 attempts"):
        read(1)
    assert read(0).size == 40
    cuts[:] = [100, 100]
    assert read(2).size == 40
