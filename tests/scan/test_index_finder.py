"""Which of the two a data set is opened through: its index.json, or the companion of that."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from streamplug_testing.fakes import CountingStorage, FlakyStorage

from streamplug import MDSWriter, StreamingDataset
from streamplug.builtin.storages.any import AnyFsspec
from streamplug.errors import CacheConflictError, InvalidIndexError, NotFound, StorageError
from streamplug.index import COMPANION_NAME, INDEX_NAME
from streamplug.index.mapped import MappedArray
from streamplug.scan import index_finder as indexes
from streamplug.scan.companions import build_companion, check_companion


def write(folder: Path, count: int = 40, **kwargs) -> Path:
    with MDSWriter(columns={"id": "int"}, out=folder, size_limit=250, **kwargs) as writer:
        writer.write_batch({"id": np.arange(count)})
    return folder


@pytest.fixture(autouse=True)
def every_index_is_large(monkeypatch):
    monkeypatch.setattr(indexes, "LARGE_INDEX", 0)


@pytest.fixture
def folder(tmp_path) -> Path:
    return write(tmp_path / "set", hashes=["xxh64"])


@pytest.fixture
def built(folder) -> Path:
    build_companion(str(folder))
    return folder


def is_mapped(dataset: StreamingDataset) -> bool:
    return isinstance(dataset._reader.starts, MappedArray)


def ids(dataset: StreamingDataset) -> list[int]:
    return [row["id"] for row in dataset]


def edit_index(folder: Path) -> None:
    """Change the index.json of a set: other samples, the same size, the same pieces at both ends."""
    text = (folder / INDEX_NAME).read_text()
    at = text.index('"hashes": {"xxh64": "', len(text) // 2) + len('"hashes": {"xxh64": "')
    (folder / INDEX_NAME).write_text(text[:at] + "0000" + text[at + 4 :])


def test_a_set_is_the_same_through_its_companion(folder):
    plain = StreamingDataset(local=str(folder), shuffle=True, batch_size=4)
    expected = ids(plain)
    build_companion(str(folder))
    mapped = StreamingDataset(local=str(folder), shuffle=True, batch_size=4)
    assert (is_mapped(plain), is_mapped(mapped)) == (False, True)
    assert mapped._reader.starts is mapped._run._planner._mapped
    assert mapped.num_shards == plain.num_shards == len(mapped.samples_per_shard) > 3
    assert mapped.samples_per_shard.tolist() == plain.samples_per_shard.tolist()
    assert ids(mapped) == expected
    assert mapped.state_dict() == plain.state_dict()
    mapped.load_state_dict(plain.state_dict())


def test_a_small_index_is_read_without_looking_for_a_companion(built, monkeypatch):
    monkeypatch.setattr(indexes, "LARGE_INDEX", (built / INDEX_NAME).stat().st_size + 1)
    assert not is_mapped(StreamingDataset(local=str(built)))


@pytest.mark.parametrize("short", [1, 10**6])
def test_a_short_index_comes_in_one_request(folder, tmp_path, monkeypatch, short):
    monkeypatch.setattr(indexes, "LARGE_INDEX", 1 << 24)
    monkeypatch.setattr(indexes, "_SHORT_INDEX", short)
    storage = CountingStorage(AnyFsspec(str(folder)))
    index = indexes.open_index(storage, tmp_path / "cache", in_place=False, retries=0)
    assert index.size == 40
    assert (tmp_path / "cache" / INDEX_NAME).read_bytes() == (folder / INDEX_NAME).read_bytes()
    wanted = {"read_range": 1} if short > 1 else {"read_range": 1, "stat": 1, "read": 1}
    assert storage.counts == wanted


def test_an_index_is_read_where_parts_cannot_be(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(indexes, "LARGE_INDEX", 1 << 24)
    storage = FlakyStorage(
        AnyFsspec(str(folder)), fail=lambda name, key: name == "read_range", error=StorageError
    )
    index = indexes.open_index(storage, tmp_path / "cache", in_place=False, retries=0)
    assert index.size == 40


def test_two_streams_have_one_sequence_of_samples(built, tmp_path):
    other = write(tmp_path / "other", 15)
    from streamplug import Stream

    both = StreamingDataset(streams=[Stream(local=str(built)), Stream(local=str(other))])
    assert both.size == 55
    assert [row["id"] for row in both[[0, 39, 40, 54]]] == [0, 39, 0, 14]


def test_a_companion_without_its_index_is_no_data_set(built):
    (built / INDEX_NAME).unlink()
    with pytest.raises(NotFound, match=r"index\.json does not exist: there is no data set"):
        StreamingDataset(local=str(built))


@pytest.mark.parametrize("name", ["damaged", "cut", "empty", "other size"])
def test_a_companion_that_cannot_be_used_is_told_of_and_not_used(built, name, caplog):
    path = built / COMPANION_NAME
    data = path.read_bytes()
    if name == "other size":
        with (built / INDEX_NAME).open("a") as file:
            file.write(" ")
    changed = {"damaged": data[:-9] + b"?" + data[-8:], "cut": data[:-1], "empty": b""}
    path.write_bytes(changed.get(name, data))
    with caplog.at_level(logging.WARNING, "streamplug"):
        dataset = StreamingDataset(local=str(built))
    assert not is_mapped(dataset)
    assert ids(dataset) == list(range(40))
    assert len(caplog.messages) == 1
    assert COMPANION_NAME in caplog.text
    assert f"reading {built}/{INDEX_NAME} instead" in caplog.text


def test_an_index_that_was_written_again_is_noticed_by_its_pieces(built, caplog):
    stamp = (built / INDEX_NAME).stat().st_mtime_ns
    text = (built / INDEX_NAME).read_bytes()
    (built / INDEX_NAME).write_bytes(text.replace(b'"id"', b'"ix"'))
    os.utime(built / INDEX_NAME, ns=(stamp, stamp))
    dataset = StreamingDataset(local=str(built), columns=["ix"])
    assert not is_mapped(dataset)
    assert "was made from another index.json" in caplog.text


@pytest.mark.parametrize("newer", [True, False])
def test_all_of_an_index_that_is_newer_is_compared(built, newer, caplog, monkeypatch):
    monkeypatch.setattr("streamplug.scan.index_finder.sample_digest", lambda _: "same")
    monkeypatch.setattr("streamplug.index.source.sample_digest", lambda _: "same")
    build_companion(str(built))
    stamp = (built / COMPANION_NAME).stat().st_mtime_ns
    edit_index(built)
    os.utime(built / INDEX_NAME, ns=(stamp + newer, stamp + newer))
    assert is_mapped(StreamingDataset(local=str(built))) is not newer
    assert ("was made from another index.json" in caplog.text) is newer


def test_an_index_that_was_touched_only_keeps_its_companion(built):
    stamp = (built / COMPANION_NAME).stat().st_mtime_ns + 10**9
    os.utime(built / INDEX_NAME, ns=(stamp, stamp))
    assert is_mapped(StreamingDataset(local=str(built)))


# -- from far ---------------------------------------------------------------------------


def far(folder: Path, cache: Path) -> StreamingDataset:
    return StreamingDataset(remote=str(folder), local=str(cache), batch_size=4)


def test_a_companion_is_brought_to_the_cache_once(built, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = far(built, cache)
    assert is_mapped(first)
    assert ids(first) == list(range(40))
    assert (cache / COMPANION_NAME).read_bytes() == (built / COMPANION_NAME).read_bytes()
    assert not (cache / INDEX_NAME).exists()
    monkeypatch.setattr("streamplug.builtin.storages.any.AnyFsspec.download", None)
    assert is_mapped(far(built, cache))


def test_a_set_without_companion_is_read_from_far_as_ever(folder, tmp_path):
    cache = tmp_path / "cache"
    assert not is_mapped(far(folder, cache))
    assert (cache / INDEX_NAME).exists()
    build_companion(str(folder))
    assert is_mapped(far(folder, cache))
    (folder / COMPANION_NAME).unlink()
    assert not is_mapped(far(folder, cache))


def test_a_damaged_companion_is_not_brought_to_the_cache(built, tmp_path, caplog):
    path = built / COMPANION_NAME
    data = bytearray(path.read_bytes())
    data[-len(data) // 2] ^= 1
    path.write_bytes(data)
    dataset = far(built, tmp_path / "cache")
    assert not is_mapped(dataset)
    assert "is damaged" in caplog.text
    assert not (tmp_path / "cache" / COMPANION_NAME).exists()
    assert ids(dataset) == list(range(40))


def test_a_stale_companion_is_not_brought_to_the_cache(built, tmp_path, caplog):
    (built / INDEX_NAME).write_text((built / INDEX_NAME).read_text() + " ")
    assert not is_mapped(far(built, tmp_path / "cache"))
    assert "was made from another index.json" in caplog.text
    assert not (tmp_path / "cache" / COMPANION_NAME).exists()


def test_a_companion_that_was_made_again_replaces_the_one_in_the_cache(built, tmp_path):
    cache = tmp_path / "cache"
    far(built, cache)
    path = built / COMPANION_NAME
    (cache / COMPANION_NAME).write_bytes(b"of another time")
    assert is_mapped(far(built, cache))
    assert (cache / COMPANION_NAME).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("damage", ["any byte", "its end", "longer"])
def test_a_companion_that_was_damaged_in_the_cache_is_fetched_again(
    built, tmp_path, damage, caplog
):
    cache = tmp_path / "cache"
    assert ids(far(built, cache)) == list(range(40))
    path, whole = cache / COMPANION_NAME, (built / COMPANION_NAME).read_bytes()
    # The gaps between its columns, and what is not used of its head, mean nothing.
    meaning = set()
    for at in range(0, len(whole), 5):
        bad = bytearray(whole)
        bad[at] ^= 1
        changed = {"any byte": bad, "its end": whole[: at + 1], "longer": whole + b"x" * (at + 1)}
        path.write_bytes(changed[damage])
        caplog.clear()
        assert is_mapped(far(built, cache))
        if path.read_bytes() == whole:
            meaning.add(at)
    assert len(meaning) > (0.5 if damage == "any byte" else 0.9) * len(range(0, len(whole), 5))
    assert ids(far(built, cache)) == list(range(40))


def test_damage_in_a_cached_companion_is_not_blamed_on_a_shard(built, tmp_path, caplog):
    cache = tmp_path / "cache"
    first = far(built, cache)
    name = f"{first._reader._streams[0].basename(0)}"
    path = cache / COMPANION_NAME
    whole = path.read_bytes()
    sizes = np.array(
        [s["raw_data"]["bytes"] for s in json.loads((built / INDEX_NAME).read_bytes())["shards"]],
        "<u4",
    )
    at = whole.index(sizes.tobytes())
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    again = far(built, cache)
    assert again[0] == {"id": 0}
    assert (cache / name).exists()
    assert "index.streamplug is damaged (a digest differs)" in caplog.text
    assert "fetching it again" in caplog.text
    assert path.read_bytes() == whole


@pytest.mark.parametrize("again", [True, False])
def test_a_cache_of_another_set_is_refused(built, tmp_path, again):
    cache = tmp_path / "cache"
    far(built, cache)
    shutil.rmtree(built)
    write(built, 60)
    if again:
        build_companion(str(built))
    with pytest.raises(CacheConflictError, match="was written again since"):
        far(built, cache)
    other = write(tmp_path / "other", 10)
    build_companion(str(other))
    with pytest.raises(CacheConflictError, match="is the cache of"):
        far(other, cache)


def test_writing_a_set_again_removes_its_companion():
    from fsspec.implementations.memory import MemoryFileSystem

    url = "memory://indexes/set"
    for count in (40, 50):
        write(url, count, exist_ok=True)
        assert not MemoryFileSystem().exists(f"/indexes/set/{COMPANION_NAME}")
        build_companion(url)
        assert MemoryFileSystem().exists(f"/indexes/set/{COMPANION_NAME}")
    assert check_companion(url).samples == 50


# -- making and checking ------------------------------------------------------------------


def test_what_was_made_is_described(folder):
    told: list[str] = []
    made = build_companion(str(folder), report=told.append)
    assert made == check_companion(str(folder))
    assert (made.url, made.samples) == (f"{folder}/{COMPANION_NAME}", 40)
    assert made.shards == len(json.loads((folder / INDEX_NAME).read_bytes())["shards"])
    assert (made.bytes, made.index_bytes) == tuple(
        (folder / name).stat().st_size for name in (COMPANION_NAME, INDEX_NAME)
    )
    assert made.digest == StreamingDataset(local=str(folder)).state_dict()["shards"]
    assert told[0] == f"reading {folder}/{INDEX_NAME}"
    assert "writing starts" in told


def test_checking_reads_all_of_both(built):
    edit_index(built)
    with pytest.raises(InvalidIndexError, match="was made from another index"):
        check_companion(str(built))
    path = built / COMPANION_NAME
    build_companion(str(built))
    data = bytearray(path.read_bytes())
    data[-len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidIndexError, match="is damaged"):
        check_companion(str(built))


def test_what_is_missing_is_named(tmp_path, folder):
    with pytest.raises(NotFound, match=r"index\.json does not exist"):
        build_companion(str(tmp_path))
    with pytest.raises(NotFound, match=rf"{COMPANION_NAME} does not exist"):
        check_companion(str(folder))
    (tmp_path / INDEX_NAME).write_bytes(b"")
    with pytest.raises(InvalidIndexError, match="is empty"):
        build_companion(str(tmp_path))
    assert not (tmp_path / COMPANION_NAME).exists()
