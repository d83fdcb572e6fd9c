"""Training nodes without a network: what is in `local` is read, and only what is missing is an error."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamplug_files import ScannableFormat, ScanResult

from streamplug import (
    MDSWriter,
    Stream,
    StreamingDataset,
    register_format,
    register_storage,
)
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import (
    AccessDenied,
    CacheConflictError,
    DataError,
    HashMismatchError,
    NotFound,
    StorageError,
    StreamplugError,
    Transient,
    UnknownNameError,
)
from streamplug.interfaces import Column, ShardReader
from streamplug.plugin.registry import unregister
from streamplug.plugin_kit.error_mapping import storage_error
from streamplug.transfer import probe

COUNT = 60


class NoCredentialsError(Exception):
    """As botocore raises it."""


class Remote(LocalStorage):
    """A directory that may be away."""

    failure: Exception | str | None = None
    requests = 0
    torn_down = threading.Event()

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__("file" + url[url.index(":") :], **options)
        self.url = url

    def translated(self, key: str) -> Any:
        type(self).requests += 1
        if self.failure == "nothing comes":
            self.torn_down.wait(60)
        if isinstance(self.failure, Exception):
            raise storage_error(self.failure, self.url_of(key))
        return super().translated(key)


@pytest.fixture(autouse=True)
def remote(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    monkeypatch.setattr(probe, "_stalled", {})
    monkeypatch.setattr(Remote, "failure", None)
    monkeypatch.setattr(Remote, "requests", 0)
    monkeypatch.setattr(Remote, "torn_down", threading.Event())
    register_storage("away", Remote)
    yield Remote
    Remote.torn_down.set()
    unregister("storage", "away")


def write(root: Path, **options: Any) -> str:
    options = {"columns": {"id": "int"}, "hashes": ["sha1"], **options}
    with MDSWriter(out=root, size_limit=500, **options) as out:
        for number in range(COUNT):
            out.write({"id": number})
    return f"away://{root}"


@pytest.fixture
def places(tmp_path) -> dict[str, Any]:
    return {"remote": write(tmp_path / "far"), "local": str(tmp_path / "near"), "batch_size": 4}


def ids(dataset: StreamingDataset) -> list[int]:
    return sorted(sample["id"] for sample in dataset)


def shards(folder: Any) -> list[Path]:
    return sorted(Path(folder).rglob("shard.*.mds*"))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        NoCredentialsError(),
        PermissionError(),
        ImportError("install s3fs"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_complete_cache_is_read_while_its_remote_is_away(places, remote, error, caplog):
    assert ids(StreamingDataset(**places)) == list(range(COUNT))
    total = len(shards(places["local"]))
    remote.failure = error
    with caplog.at_level(logging.WARNING, logger="streamplug"):
        dataset = StreamingDataset(**places)
        assert ids(dataset) == list(range(COUNT))
        assert ids(dataset) == list(range(COUNT))
    (told,) = [r.getMessage() for r in caplog.records if "cannot be reached" in r.getMessage()]
    assert told.startswith(f"{places['remote']} cannot be reached (")
    assert f"the copy in {places['local']}, which has the index and {total} of {total}" in told


def test_a_copy_made_by_hand_serves_as_well(places, remote, tmp_path):
    shutil.copytree(tmp_path / "far", places["local"])
    remote.failure = ConnectionRefusedError()
    assert ids(StreamingDataset(**places)) == list(range(COUNT))


def test_only_a_missing_shard_is_an_error_which_names_it_the_cause_and_the_remedy(
    places, remote, tmp_path, caplog
):
    ids(StreamingDataset(**places))
    total = len(shards(places["local"]))
    lost = shards(places["local"])[2]
    lost.unlink()
    remote.failure = ConnectionRefusedError()
    dataset = StreamingDataset(**places)
    assert f"the index and {total - 1} of {total} shards; a sample of another shard" in caplog.text
    assert dataset[0] == {"id": 0}
    with pytest.raises(Transient) as caught:
        dataset[
            2 * json.loads((tmp_path / "far" / "index.json").read_text())["shards"][0]["samples"]
        ]
    text = str(caught.value)
    assert text.startswith(f"shard 2: {places['remote']}/{lost.name} is not in {places['local']}")
    assert "the connection was refused" in text
    assert "make the remote reachable, or copy the file from another machine" in text
    remote.failure = None  # the network is back
    assert ids(dataset) == list(range(COUNT))


@pytest.mark.parametrize(
    "failure", ["nothing comes", ConnectionRefusedError()], ids=["silent", "away"]
)
def test_a_missing_shard_is_asked_for_as_often_as_download_retry_says(
    places, remote, failure, monkeypatch, tmp_path
):
    ids(StreamingDataset(**places))
    shards(places["local"])[2].unlink()
    monkeypatch.setattr(probe, "PROBE_SECONDS", 0.3)
    remote.failure = failure
    dataset = StreamingDataset(**places, download_retry=3, predownload=1)
    opened = remote.requests
    translated = Remote.translated

    def answer_fourth(self: Remote, key: str) -> Any:
        if remote.requests >= opened + 3:
            remote.failure = None
        return translated(self, key)

    monkeypatch.setattr(Remote, "translated", answer_fourth)
    assert ids(dataset) == list(range(COUNT))
    assert remote.requests > opened + 3


def test_a_missing_plugin_is_no_matter_where_all_is_there(places, caplog):
    ids(StreamingDataset(**places))
    unregister("storage", "away")
    try:
        dataset = StreamingDataset(**places)
        assert ids(dataset) == list(range(COUNT))
        assert "cannot be reached (" in caplog.text
        shards(places["local"])[1].unlink()
        with pytest.raises(StorageError, match=r"shard 1: away:.*is not in .*'away'"):
            ids(StreamingDataset(**places))
        with pytest.raises(UnknownNameError, match="away"):
            StreamingDataset(remote=places["remote"], local=f"{places['local']}-other")
    finally:
        register_storage("away", Remote)


def test_a_server_that_never_answers_is_waited_for_once_and_briefly(
    places, remote, monkeypatch, tmp_path
):
    others = {**places, "remote": write(tmp_path / "far2"), "local": str(tmp_path / "near2")}
    for each in (places, others):
        ids(StreamingDataset(**each))
    monkeypatch.setattr(probe, "PROBE_SECONDS", 0.5)
    remote.failure = "nothing comes"
    streams = [Stream(remote=each["remote"], local=each["local"]) for each in (places, others)]
    began = time.monotonic()
    dataset = StreamingDataset(streams=streams, batch_size=4)
    assert time.monotonic() - began < 5
    assert len(ids(dataset)) == 2 * COUNT


def test_without_a_copy_it_fails_as_before(places, remote):
    remote.failure = ConnectionRefusedError()
    with pytest.raises(Transient, match=r"the connection was refused.*gave up after 3 attempts"):
        StreamingDataset(**places)


def test_a_remote_that_has_no_such_set_is_not_away(places, tmp_path):
    ids(StreamingDataset(**places))
    shutil.rmtree(tmp_path / "far")
    with pytest.raises(NotFound):
        StreamingDataset(**places)


def test_the_cache_of_another_set_is_still_refused(places, remote, tmp_path):
    ids(StreamingDataset(**places))
    remote.failure = ConnectionRefusedError()
    with pytest.raises(CacheConflictError, match="is the cache of"):
        StreamingDataset(**{**places, "remote": f"away://{tmp_path}/other"})


def test_a_damaged_index_is_not_read(places, remote, tmp_path):
    ids(StreamingDataset(**places))
    (tmp_path / "near" / "index.json").write_text("{}")
    remote.failure = ConnectionRefusedError()
    with pytest.raises(Transient):
        StreamingDataset(**places)


def test_splits_and_streams_of_which_some_are_complete(places, remote, tmp_path):
    for split in ("train", "val"):
        write(tmp_path / "far" / split)
    streams = [
        Stream(remote=places["remote"], local=places["local"], split=split)
        for split in ("train", "val")
    ]
    StreamingDataset(streams=streams[:1], batch_size=4)[:]
    StreamingDataset(streams=streams[1:], batch_size=4)[0]
    remote.failure = ConnectionRefusedError()
    dataset = StreamingDataset(streams=streams, batch_size=4)
    assert [sample["id"] for sample in dataset[:COUNT]] == list(range(COUNT))
    assert dataset[COUNT] == {"id": 0}
    with pytest.raises(Transient, match=r"val/shard.*is not in .*near/val"):
        dataset[-1]


@pytest.mark.parametrize("keep_zip", [False, True])
def test_compressed_shards_of_which_only_the_files_as_stored_are_there(tmp_path, remote, keep_zip):
    places = {
        "remote": write(tmp_path / "far", compression="gz"),
        "local": str(tmp_path / "near"),
        "keep_zip": keep_zip,
    }
    shutil.copytree(tmp_path / "far", tmp_path / "near")
    remote.failure = ConnectionRefusedError()
    assert ids(StreamingDataset(**places)) == list(range(COUNT))
    assert len(list((tmp_path / "near").glob("*.gz"))) == len(list((tmp_path / "far").glob("*.gz")))


def test_workers_of_a_loader_read_it_too(places, remote):
    torch = pytest.importorskip("torch")
    ids(StreamingDataset(**places))
    remote.failure = ConnectionRefusedError()
    loader = torch.utils.data.DataLoader(StreamingDataset(**places), None, num_workers=2)
    assert sorted(sample["id"] for sample in loader) == list(range(COUNT))


def test_digests_are_checked_and_what_is_damaged_is_not_removed(places, remote):
    ids(StreamingDataset(**places))
    remote.failure = ConnectionRefusedError()
    assert ids(StreamingDataset(**places, validate_hash="sha1")) == list(range(COUNT))
    damaged = shards(places["local"])[1]
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(HashMismatchError, match=damaged.name):
        ids(StreamingDataset(**places, validate_hash="sha1"))
    assert damaged.exists()
    dataset = StreamingDataset(**places, validate_hash="sha1")
    remote.failure = None  # it is back, and the shard is fetched again
    assert ids(dataset) == list(range(COUNT))


def test_nothing_is_evicted_for_a_shard_that_cannot_be_fetched(places, remote, tmp_path):
    size = max(path.stat().st_size for path in shards(tmp_path / "far"))
    total = len(shards(tmp_path / "far"))
    places["cache_limit"] = (total - 1) * size  # one too few
    dataset = StreamingDataset(**places, predownload=0)
    for start in range(0, COUNT, COUNT // total):
        dataset[start]
    before = shards(places["local"])
    remote.failure = AccessDenied("no")
    dataset = StreamingDataset(**places)
    with pytest.raises(StorageError, match="is not in"):
        ids(dataset)
    assert shards(places["local"]) == before


def cache_compressed_files(tmp_path) -> dict[str, Any]:
    """Fill a cache with the compressed shards of a data set; return its places, and a limit for half."""
    near = tmp_path / "near"
    places = {"remote": write(tmp_path / "far", compression="gz"), "local": str(near)}
    places |= {"batch_size": 4, "keep_zip": True}
    assert ids(StreamingDataset(**places)) == list(range(COUNT))
    limit = sum(path.stat().st_size for path in shards(near)) // 2
    for path in near.glob("*.mds"):
        path.unlink()
    return {**places, "cache_limit": limit}


def test_no_compressed_shard_is_evicted_for_a_decompressed_one(tmp_path, remote):
    places = cache_compressed_files(tmp_path)
    compressed = shards(places["local"])
    remote.failure = ConnectionRefusedError()
    dataset = StreamingDataset(**places)
    assert ids(dataset) == list(range(COUNT))
    assert set(compressed) <= set(shards(places["local"]))
    remote.failure = None
    dataset = StreamingDataset(**places)
    compressed[0].unlink()
    compressed[0].with_suffix("").unlink()
    assert ids(dataset) == list(range(COUNT))
    used = sum(path.stat().st_size for path in shards(places["local"]))
    assert used <= places["cache_limit"]


def test_no_shard_is_evicted_where_the_disk_is_full(tmp_path, remote, monkeypatch):
    places = cache_compressed_files(tmp_path)
    compressed = shards(places["local"])
    remote.failure = ConnectionRefusedError()
    dataset = StreamingDataset(**places)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("streamplug.cache.store.decompress_file", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        ids(dataset)
    assert shards(places["local"]) == compressed


def test_samples_by_range_need_the_remote(places, remote):
    StreamingDataset(**places, access="range")[0]
    remote.failure = ConnectionRefusedError()
    with pytest.raises(Transient, match="the connection was refused"):
        StreamingDataset(**places, access="range")


# -- sets without an index -----------------------------------------------------------------


class Bytes(ScannableFormat):
    """Every byte of a file is a sample."""

    suffix = "raw"

    def columns(self, entry, make_encoding):
        return (Column("id", "uint8", make_encoding("id", "uint8")),)

    def scan(self, file):
        return ScanResult(file.size, {"format": "bytes-as-samples", "version": 2}, {}, {})

    def open(self, shard, files, columns):
        return Reader(files["data"])


class Reader(ShardReader):
    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def row(self, index, columns):
        return {"id": int(self._data[index])}

    def take(self, rows, columns):
        return [np.asarray(self._data)[rows]]


@pytest.fixture
def scanned(tmp_path):
    register_format("bytes-as-samples", Bytes)
    (tmp_path / "far").mkdir()
    for number in range(4):
        (tmp_path / "far" / f"{number}.raw").write_bytes(bytes(range(5 * number, 5 * number + 5)))
    yield {
        "remote": f"away://{tmp_path}/far",
        "local": str(tmp_path / "near"),
        "format": "bytes-as-samples",
    }
    unregister("format", "bytes-as-samples")


@pytest.mark.parametrize("error", [ConnectionRefusedError(), NoCredentialsError(), "nothing comes"])
def test_files_that_were_scanned_before_are_read_without_a_list(
    scanned, remote, error, caplog, monkeypatch
):
    assert ids(StreamingDataset(**scanned)) == list(range(20))
    monkeypatch.setattr(probe, "PROBE_SECONDS", 0.5)
    remote.failure = error
    assert ids(StreamingDataset(**scanned)) == list(range(20))
    assert "the index and 4 of 4 shards" in caplog.text


@pytest.mark.parametrize("error", [ConnectionRefusedError(), "nothing comes"])
def test_a_choice_of_files_is_read_only_by_the_same_choice(scanned, remote, error, monkeypatch):
    some = {**scanned, "remote": f"{scanned['remote']}/[01].raw"}
    assert ids(StreamingDataset(**some)) == list(range(10))
    monkeypatch.setattr(probe, "PROBE_SECONDS", 0.5)
    remote.failure = error
    assert ids(StreamingDataset(**some)) == list(range(10))
    for other in (scanned, {**some, "remote": f"{scanned['remote']}/[23].raw"}):
        with pytest.raises(StorageError):
            StreamingDataset(**other)


def test_a_directory_of_files_as_samples(tmp_path, remote):
    pytest.importorskip("streamplug_folder")
    for number in range(20):
        path = tmp_path / "far" / "ab"[number % 2] / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]))
    places = {
        "remote": f"away://{tmp_path}/far",
        "local": str(tmp_path / "near"),
        "format": "folder",
    }
    expected = [sample["path"] for sample in StreamingDataset(**places)]
    remote.failure = ConnectionRefusedError()
    assert [sample["path"] for sample in StreamingDataset(**places)] == expected


def write_numbers(place, compression=None):
    with MDSWriter(out=str(place), columns={"n": "int"}, compression=compression) as out:
        for n in range(COUNT):
            out.write({"n": n})


@pytest.mark.parametrize("compression", [None, "gz"])
@pytest.mark.parametrize("form", [None, "mds"])
def test_a_complete_copy_of_a_disk_that_is_not_mounted_is_told(tmp_path, compression, form, caplog):
    place, copy = tmp_path / "mnt" / "disk" / "set", tmp_path / "copy"
    write_numbers(place, compression)
    there = {"remote": str(place), "local": str(copy), "format": form}
    assert len(list(StreamingDataset(**there))) == COUNT
    shutil.rmtree(place)
    with pytest.raises(StreamplugError, match=r"complete, with 1 of 1 shards: pass it as local="):
        StreamingDataset(**there)
    assert len(list(StreamingDataset(local=str(copy)))) == COUNT
    place.parent.rmdir()  # the mount point itself
    assert len(list(StreamingDataset(**there))) == COUNT
    assert "cannot be reached" in caplog.text
    assert "1 of 1 shards" in caplog.text


def test_an_incomplete_copy_of_a_disk_that_is_not_mounted_is_told(tmp_path):
    place, copy = tmp_path / "disk" / "set", tmp_path / "copy"
    write_numbers(place)
    StreamingDataset(remote=str(place), local=str(copy))
    shutil.rmtree(place)
    with pytest.raises(NotFound, match=r"the copy in .*copy has the index and 0 of 1 shards"):
        StreamingDataset(remote=str(place), local=str(copy))


def test_no_shard_is_removed_while_a_disk_is_not_mounted(tmp_path):
    disk, copy = tmp_path / "mnt" / "disk", tmp_path / "copy"
    write(disk / "set")
    there = {"remote": str(disk / "set"), "local": str(copy), "batch_size": 4}
    assert ids(StreamingDataset(**there)) == list(range(COUNT))
    disk.rename(tmp_path / "elsewhere")
    missing, damaged, *_ = shards(copy)
    missing.unlink()
    damaged.write_bytes(bytes(damaged.stat().st_size))
    before = shards(copy)
    limit = sum(path.stat().st_size for path in before)  # the missing one has no room
    dataset = StreamingDataset(**there, cache_limit=limit)
    per_shard = dataset.samples_per_shard
    with pytest.raises(StorageError, match=r"is not in .*make the remote reachable"):
        dataset[0]
    with pytest.raises(DataError, match=damaged.name):
        dataset[int(per_shard[0])]
    assert shards(copy) == before
    (tmp_path / "elsewhere").rename(disk)
    assert ids(dataset) == list(range(COUNT))


def test_scanned_files_of_a_disk_that_is_not_mounted_are_read_by_their_names(tmp_path):
    pytest.importorskip("streamplug_text")
    place, copy = tmp_path / "disk" / "set", tmp_path / "copy"
    place.mkdir(parents=True)
    for n in range(2):
        (place / f"{n}.jsonl").write_text(json.dumps({"n": n}) + "\n")
    there = {"remote": str(place), "local": str(copy), "format": "jsonl"}
    assert list(StreamingDataset(**there)) == [{"n": 0}, {"n": 1}]
    shutil.rmtree(place)
    with pytest.raises(NotFound, match=r"complete, .*: name its files, such as remote=") as caught:
        StreamingDataset(**there)
    pattern = str(caught.value).rpartition("remote='")[2].partition("'")[0]
    assert list(StreamingDataset(remote=pattern, format="jsonl")) == [{"n": 0}, {"n": 1}]
