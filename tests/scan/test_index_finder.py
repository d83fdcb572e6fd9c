"""Fetching and parsing the index of a data set."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from streamplug_testing.fakes import CountingStorage, FlakyStorage

from streamplug import MDSWriter, StreamingDataset
from streamplug.builtin.storages.fsspec import AnyFsspec
from streamplug.cache.offline import load_imported_index
from streamplug.cache.staging import remove_stale_files, stage_cache_file
from streamplug.errors import CacheConflictError, StorageError, TruncatedIndexError
from streamplug.index import INDEX_NAME, Index
from streamplug.scan import index_finder as indexes


def write(folder: Path, count: int = 40) -> Path:
    with MDSWriter(columns={"id": "int"}, out=folder, size_limit=250) as writer:
        writer.write_batch({"id": np.arange(count)})
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return write(tmp_path / "set")


@pytest.mark.parametrize("short", [1, 10**6])
def test_a_short_index_comes_in_one_request(folder, tmp_path, monkeypatch, short):
    monkeypatch.setattr(indexes, "_FIRST_READ_BYTES", short)
    storage = CountingStorage(AnyFsspec(str(folder)))
    index = indexes.open_index(storage, tmp_path / "cache", in_place=False, retries=0)
    assert index.size == 40
    assert (tmp_path / "cache" / INDEX_NAME).read_bytes() == (folder / INDEX_NAME).read_bytes()
    assert storage.counts == ({"read_range": 1} if short > 1 else {"read_range": 1, "read": 1})


def test_an_index_is_read_where_parts_cannot_be(folder, tmp_path):
    storage = FlakyStorage(
        AnyFsspec(str(folder)), fail=lambda name, key: name == "read_range", error=StorageError
    )
    index = indexes.open_index(storage, tmp_path / "cache", in_place=False, retries=0)
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


def test_another_process_does_not_remove_the_imported_index_being_written(
    folder, tmp_path, monkeypatch
):
    near = tmp_path / "cache"

    @contextmanager
    def stage_and_remove_stale(*arguments):
        with stage_cache_file(*arguments) as part:
            yield part
            remove_stale_files(near)  # as another process does when it opens the cache

    monkeypatch.setattr("streamplug.cache.offline.stage_cache_file", stage_and_remove_stale)
    storage = AnyFsspec(str(folder))
    for _ in range(2):
        index = indexes.open_index(
            storage, near, in_place=False, retries=0, translate=lambda data: data + b"\n"
        )
        assert index.size == 40
    data = (folder / INDEX_NAME).read_bytes()
    assert load_imported_index(near, data) == data + b"\n"


@pytest.mark.parametrize("suffix", [b"\n\n", b" "], ids=["of another size", "of the same size"])
def test_the_imported_index_of_another_importer_is_replaced(folder, tmp_path, suffix):
    near, storage = tmp_path / "cache", AnyFsspec(str(folder))
    data = (folder / INDEX_NAME).read_bytes()

    def open_index(suffix: bytes) -> None:
        indexes.open_index(
            storage, near, in_place=False, retries=0, translate=lambda data: data + suffix
        )
        assert load_imported_index(near, data) == data + suffix

    open_index(b"\n")
    open_index(suffix)
    [path] = (path for path in near.rglob("translated/*"))
    written = path.stat().st_mtime_ns, path.stat().st_ino
    open_index(suffix)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written  # not written again


@pytest.mark.parametrize("first_read_bytes", [1, 10**6])
@pytest.mark.parametrize("cached", [False, True])
def test_an_index_that_was_cut_short_is_read_again(
    folder, tmp_path, monkeypatch, first_read_bytes, cached
):
    monkeypatch.setattr(indexes, "_FIRST_READ_BYTES", first_read_bytes)
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    storage = AnyFsspec(str(folder))
    cuts = [100, 100]

    def cut(data: bytes) -> bytes:
        return data[: cuts.pop()] if cuts and len(data) > 1 else data

    for name in ("read", "read_range"):
        read = getattr(storage, name)
        monkeypatch.setattr(storage, name, lambda *arguments, read=read: cut(read(*arguments)))

    def open_index(retries: int) -> Index:
        if not cached:
            return indexes.read_index(storage, retries)
        return indexes.open_index(storage, tmp_path / "cache", in_place=False, retries=retries)

    with pytest.raises(TruncatedIndexError, match=r"whole, valid JSON .*gave up after 2 attempts"):
        open_index(1)
    assert open_index(0).size == 40
    cuts[:] = [100, 100]
    assert open_index(2).size == 40
