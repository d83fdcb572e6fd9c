from __future__ import annotations

import gzip
import hashlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamplug.builtin.local_storage import LocalStorage
from streamplug.cache.quota import CacheQuota
from streamplug.cache.staging import staging_path
from streamplug.cache.store import CacheOptions, ShardStore
from streamplug.errors import (
    AccessDenied,
    ConfigError,
    CorruptShardError,
    DecompressError,
    HashMismatchError,
    NotFound,
    StorageError,
    Transient,
)
from streamplug.index.model import FileTable, Index, Schema
from streamplug.interfaces import Format
from streamplug.transfer.locks import cache_lock
from streamplug.transfer.observer import Observer
from streamplug.types import FileInfo
from tests.stall_clock import StallClock

RAW = [b"first shard " * 100, b"second shard " * 50]


class Plain(Format):
    suffix = "plain"

    def columns(self, entry, make_encoding):
        return ()

    def open(self, shard, files, columns):
        raise NotImplementedError


class TwoFiles(Plain):
    roles = ("data", "meta")


class Remote(LocalStorage):
    """Files of a directory; counts downloads, and can be made to fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.downloads: Counter[str] = Counter()
        self.hook: Callable[[str, Path], None] = lambda key, path: None

    def download(self, key: str, path: Path) -> None:
        self.downloads[key] += 1
        self.hook(key, path)
        super().download(key, path)


def hashes(data: bytes) -> dict[str, str]:
    return {"sha1": hashlib.sha1(data).hexdigest(), "md5": hashlib.md5(data).hexdigest()}


def table(files: dict[str, bytes], *, hashed: bool = True) -> FileTable:
    sizes = np.array([len(data) for data in files.values()], np.int64)
    return FileTable(list(files), sizes, [hashes(d) if hashed else {} for d in files.values()])


def index_of(raw: dict[str, bytes], stored: dict[str, bytes] | None = None, **kw: bool) -> Index:
    empty = FileTable([""] * len(raw), np.zeros(len(raw), np.int64), [{}] * len(raw))
    return Index(
        np.arange(len(raw) + 1),
        [Schema(Plain(), (), "gz" if stored else None)],
        np.zeros(len(raw), np.int64),
        {
            "raw_data": table(raw, **kw),
            "zip_data": table(stored, **kw) if stored else empty,
        },
    )


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)


class Place:
    """A remote with two shards, and an empty cache."""

    def __init__(self, root: Path, *, compressed: bool, hashed: bool = True) -> None:
        raw = {"shard.0": RAW[0], "sub/shard.1": RAW[1]}
        stored = {f"{name}.gz": gzip.compress(data) for name, data in raw.items()}
        self.far, self.near = root / "far", root / "near"
        for name, data in (stored if compressed else raw).items():
            (self.far / name).parent.mkdir(parents=True, exist_ok=True)
            (self.far / name).write_bytes(data)
        self.remote = Remote(self.far)
        self.index = index_of(raw, stored if compressed else None, hashed=hashed)

    def store(self, **options: Any) -> ShardStore:
        return ShardStore(self.index, self.near, self.remote, CacheOptions(**options))

    def local_store(self, **options: Any) -> ShardStore:
        unpacked = self.near if self.index.compressed else None
        return ShardStore(self.index, self.far, None, CacheOptions(**options), unpacked=unpacked)

    def names(self) -> list[str]:
        found = (p.relative_to(self.near) for p in self.near.rglob("*") if p.is_file())
        return sorted(str(p) for p in found if p.parts[0] != ".streamplug")


class LockClock:
    """The clock of those who wait for a lock: it stands still between steps of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds, self._looks, self._looked = 0.0, 0, threading.Condition()
        clock = SimpleNamespace(monotonic=self._tell, time_ns=time.time_ns)
        monkeypatch.setattr("streamplug.transfer.locks.time", clock)

    def _tell(self) -> float:
        with self._looked:
            self._looks += 1
            self._looked.notify_all()
            return self._seconds

    def advance(self, seconds: float) -> None:
        """Let time pass in steps; at each, wait until who waits for the lock has seen what its holder did."""
        for _ in range(4):
            with self._looked:
                self._seconds += seconds / 4
                seen = (
                    self._looks + 2
                )  # a look at the time is followed by one at the holder's files
                assert self._looked.wait_for(lambda seen=seen: self._looks >= seen, 60)


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> StallClock:
    return StallClock(monkeypatch)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> LockClock:
    return LockClock(monkeypatch)


@pytest.fixture
def plain(tmp_path: Path) -> Place:
    return Place(tmp_path, compressed=False)


@pytest.fixture
def packed(tmp_path: Path) -> Place:
    return Place(tmp_path, compressed=True)


def test_a_shard_is_downloaded_once(plain):
    store = plain.store()
    assert store.fetches
    for _ in range(3):
        assert store.ensure(1)["data"].read_bytes() == RAW[1]
    assert plain.remote.downloads == {"sub/shard.1": 1}
    assert plain.names() == ["sub/shard.1"]


def test_a_cached_shard_serves_another_store_without_the_remote(plain):
    plain.store().ensure(0)
    (plain.far / "shard.0").unlink()
    assert plain.store().ensure(0)["data"].read_bytes() == RAW[0]


def test_a_compressed_shard_is_unpacked_and_its_file_dropped(packed):
    store = packed.store()
    assert store.fetches
    assert store.ensure(0)["data"].read_bytes() == RAW[0]
    assert store.ensure(1)["data"].read_bytes() == RAW[1]
    assert packed.names() == ["shard.0", "sub/shard.1"]


def test_compressed_files_can_be_kept(packed):
    store = packed.store(keep_zip=True)
    store.ensure(0)
    assert packed.names() == ["shard.0", "shard.0.gz"]
    (packed.near / "shard.0").unlink()
    assert store.ensure(0)["data"].read_bytes() == RAW[0]
    assert packed.remote.downloads == {"shard.0.gz": 1}


def test_a_kept_compressed_file_that_was_cut_is_downloaded_again(packed):
    store = packed.store(keep_zip=True)
    store.ensure(0)
    (packed.near / "shard.0").unlink()
    (packed.near / "shard.0.gz").write_bytes(b"cut")
    assert store.ensure(0)["data"].read_bytes() == RAW[0]
    assert packed.remote.downloads == {"shard.0.gz": 2}


@pytest.mark.parametrize("keep_zip", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_an_interrupted_download_leaves_nothing_that_looks_whole(tmp_path, compressed, keep_zip):
    place = Place(tmp_path, compressed=compressed)

    def half(key: str, path: Path) -> None:
        path.write_bytes((place.far / key).read_bytes()[:20])
        raise KeyboardInterrupt

    place.remote.hook = half
    with pytest.raises(KeyboardInterrupt):
        place.store(keep_zip=keep_zip).ensure(0)
    assert place.names() == []
    place.remote.hook = lambda key, path: None
    assert place.store(keep_zip=keep_zip).ensure(0)["data"].read_bytes() == RAW[0]


def test_what_a_killed_process_left_is_removed(packed):
    left = [
        packed.near / ".streamplug" / "tmp" / f"{slot:02d}-0-abc{x}"
        for slot, x in ((1, ""), (2, "-d"))
    ]
    left[0].parent.mkdir(parents=True)
    for path in left:
        path.write_bytes(b"x" * 5000)
    packed.store().begin()
    assert not any(path.exists() for path in left)


def test_what_a_live_process_is_writing_is_left_alone(packed):
    name = "shard.0"
    with cache_lock(packed.near, name), staging_path(packed.near, name) as part:
        part.write_bytes(b"x")
        packed.store().begin()
        assert part.exists()


def test_what_is_downloaded_replaces_no_file(plain, monkeypatch):
    """Some file systems write what replaces a file to the disk at once."""
    moved, replace = [], Path.replace

    def replacing(path: Path, target: Path) -> Path:
        moved.append(target.exists())
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replacing)
    plain.store().ensure(0)
    assert moved
    assert not any(moved)


def test_a_passing_failure_is_tried_again(plain):
    def fail(key: str, path: Path) -> None:
        if plain.remote.downloads[key] < 3:
            path.write_bytes(b"x" * 5000)
            raise Transient(f"{key}: busy")

    plain.remote.hook = fail
    assert plain.store(retries=2).ensure(0)["data"].read_bytes() == RAW[0]
    assert plain.remote.downloads == {"shard.0": 3}


@pytest.mark.usefixtures("stalls")
def test_a_process_that_waits_for_its_next_attempt_is_waited_for(plain, monkeypatch, caplog, waits):
    monkeypatch.setattr("streamplug.transfer.retry.sleep", lambda _: waits.advance(60.0))
    failed = threading.Event()

    def fail_once(key: str, path: Path) -> None:
        if not failed.is_set():
            failed.set()
            raise Transient(f"{key}: busy")

    plain.remote.hook = fail_once
    store = plain.store(retries=1, timeout=0.5)
    thread = threading.Thread(target=store.ensure, args=(0,))
    thread.start()
    assert failed.wait(60)
    assert plain.store(retries=1, timeout=0.5).ensure(0)["data"].read_bytes() == RAW[0]
    thread.join()
    assert plain.remote.downloads == {"shard.0": 2}
    assert not [message for message in caplog.messages if "has been held by" in message]


@pytest.mark.parametrize("answers", [False, True])
def test_a_process_whose_attempts_fail_one_after_another_is_waited_for(
    plain, monkeypatch, caplog, stalls, waits, answers
):
    monkeypatch.setattr("streamplug.cache.store.max_pause_seconds", lambda _: 30.0)
    monkeypatch.setattr("streamplug.transfer.retry.sleep", lambda _: waits.advance(20.0))
    started, ended = threading.Event(), threading.Event()

    def fail_thrice(key: str, path: Path) -> None:
        started.set()
        if plain.remote.downloads[key] <= 3:
            if answers:
                raise Transient(f"{key}: busy")
            stalls.hang(key)
            ended.wait(60)  # no byte arrives

    plain.remote.hook = fail_thrice
    options = {"retries": 3, "timeout": 0.5}
    thread = threading.Thread(target=plain.store(**options).ensure, args=(0,))
    thread.start()
    assert started.wait(60)
    assert plain.store(**options).ensure(0)["data"].read_bytes() == RAW[0]
    ended.set()
    thread.join()
    assert plain.remote.downloads == {"shard.0": 4}
    assert not [message for message in caplog.messages if "has been held by" in message]
    deadline = time.monotonic() + 60  # the attempts that were given up end in threads of their own
    while (
        left := list((plain.near / ".streamplug" / "tmp").iterdir())
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def test_a_pause_that_a_server_asks_for_is_no_stall():
    assert CacheOptions(retries=1, timeout=5).stall_seconds == 65
    assert CacheOptions(retries=0, timeout=5).stall_seconds == 5


def test_a_failure_that_does_not_pass_is_raised_after_the_retries(plain):
    def fail(key: str, path: Path) -> None:
        raise Transient(f"{key}: busy")

    plain.remote.hook = fail
    with pytest.raises(Transient, match=r"^shard 0: shard\.0: busy; gave up after 3 attempts"):
        plain.store(retries=2).ensure(0)
    assert plain.remote.downloads == {"shard.0": 3}
    assert plain.names() == []


def damaging(place, *, times: int, change: Callable[[bytes], bytes]):
    """Let the first downloads of the first shard bring something else."""
    whole = {name: (place.far / name).read_bytes() for name in ("shard.0",)}

    def hook(key: str, path: Path) -> None:
        damaged = place.remote.downloads[key] <= times
        (place.far / key).write_bytes(change(whole[key]) if damaged else whole[key])

    place.remote.hook = hook


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d[:-1] + b"?"])
def test_what_arrives_damaged_is_downloaded_again(plain, change):
    damaging(plain, times=2, change=change)
    plain.store(retries=2).ensure(0)
    assert plain.remote.downloads == {"shard.0": 3}
    assert (plain.near / "shard.0").read_bytes() == RAW[0]


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d[:-1] + b"?"])
def test_what_always_arrives_damaged_is_an_error_after_the_retries(plain, change):
    damaging(plain, times=9, change=change)
    with pytest.raises(CorruptShardError, match=r"^shard 0: .*; gave up after 3 attempts"):
        plain.store(retries=2).ensure(0)
    assert plain.remote.downloads == {"shard.0": 3}
    assert plain.names() == []


def test_a_missing_shard_is_not_tried_again(plain):
    (plain.far / "shard.0").unlink()
    with pytest.raises(NotFound, match=r"far/shard\.0 does not exist"):
        plain.store(retries=5).ensure(0)
    assert plain.remote.downloads == {"shard.0": 1}


@pytest.mark.parametrize("change", [b"", b"cut short", RAW[0] + b"more"])
def test_a_download_of_another_size_is_refused(plain, change):
    (plain.far / "shard.0").write_bytes(change)
    with pytest.raises(CorruptShardError) as caught:
        plain.store().ensure(0)
    assert str(caught.value).startswith(f"shard 0: {plain.far}/shard.0 has {len(change)} bytes")
    assert plain.names() == []


@pytest.mark.parametrize("algorithm", [None, "sha1", "md5"])
def test_a_download_with_another_digest_is_refused(plain, algorithm):
    (plain.far / "shard.0").write_bytes(RAW[0][:-1] + b"!")
    with pytest.raises(HashMismatchError, match=r"^shard 0: .*far/shard\.0 has (sha1|md5) "):
        plain.store(validate_hash=algorithm).ensure(0)
    assert plain.names() == []


def test_a_compressed_download_with_another_digest_is_refused(packed):
    path = packed.far / "shard.0.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(HashMismatchError, match=r"^shard 0: .*far/shard\.0\.gz has sha1 "):
        packed.store().ensure(0)
    assert packed.names() == []


def test_a_digest_that_the_index_lacks_is_refused(plain):
    with pytest.raises(ConfigError, match=r"validate_hash='xxh64', but the index has for .* only"):
        plain.store(validate_hash="xxh64").ensure(0)
    assert plain.names() == []


@pytest.mark.parametrize("keep_zip", [False, True])
def test_compressed_data_that_is_damaged_is_refused(tmp_path, keep_zip):
    place = Place(tmp_path, compressed=True, hashed=False)
    path = place.far / "shard.0.gz"
    data = bytearray(path.read_bytes())
    data[15] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DecompressError) as caught:
        place.store(keep_zip=keep_zip).ensure(0)
    assert str(caught.value).startswith(f"shard 0: {path}: 'gz' data ")
    assert "write or copy it again" in str(caught.value)
    assert "shard.0" not in place.names()


def test_compressed_data_that_expands_beyond_its_announced_size_is_refused(tmp_path):
    place = Place(tmp_path, compressed=True, hashed=False)
    bomb = gzip.compress(bytes(50_000_000))
    raw = {"shard.0": RAW[0]}
    place.index = index_of(raw, {"shard.0.gz": bomb}, hashed=False)
    (place.far / "shard.0.gz").write_bytes(bomb)
    with pytest.raises(DecompressError, match=r"expands beyond the 1200 bytes announced for it"):
        place.store().ensure(0)
    assert place.names() == []


def test_compressed_data_that_is_shorter_than_announced_is_refused(tmp_path):
    place = Place(tmp_path, compressed=True, hashed=False)
    short = gzip.compress(RAW[0][:-5])
    place.index = index_of({"shard.0": RAW[0]}, {"shard.0.gz": short}, hashed=False)
    (place.far / "shard.0.gz").write_bytes(short)
    with pytest.raises(CorruptShardError, match=r"shard\.0\.gz, decompressed, has 1195 bytes"):
        place.store().ensure(0)
    assert place.names() == []


def test_decompressed_data_with_another_digest_is_refused(packed):
    other = gzip.compress(RAW[0][:-1] + b"!")
    packed.index = index_of({"shard.0": RAW[0]}, {"shard.0.gz": other})
    (packed.far / "shard.0.gz").write_bytes(other)
    with pytest.raises(HashMismatchError, match=r"shard\.0\.gz, decompressed, has sha1"):
        packed.store().ensure(0)
    assert packed.names() == []


def test_local_shards_are_used_where_they_are(plain):
    store = plain.local_store()
    assert not store.fetches
    assert store.ensure(0)["data"] == plain.far / "shard.0"


def test_a_local_compressed_shard_is_unpacked_elsewhere(packed):
    store = packed.local_store()
    assert store.fetches
    assert store.ensure(0)["data"] == packed.near / "shard.0"
    assert packed.names() == ["shard.0"]
    assert (packed.near / "shard.0").read_bytes() == RAW[0]
    assert (packed.far / "shard.0.gz").exists()


def test_a_missing_local_shard_is_named(plain):
    (plain.far / "shard.0").unlink()
    with pytest.raises(NotFound) as caught:
        plain.local_store().ensure(0)
    assert str(caught.value) == (
        f"shard 0: {plain.far}/shard.0 does not exist; pass remote= if the set lies elsewhere"
    )


def test_a_missing_local_compressed_shard_is_named(packed):
    (packed.far / "sub" / "shard.1.gz").unlink()
    with pytest.raises(NotFound, match=r"^shard 1: .*/sub/shard\.1\.gz does not exist"):
        packed.local_store().ensure(1)


@pytest.mark.parametrize("change", [b"", b"cut short", RAW[0] + b"more"])
def test_a_local_shard_of_another_size_is_refused(plain, change):
    (plain.far / "shard.0").write_bytes(change)
    with pytest.raises(CorruptShardError) as caught:
        plain.local_store().ensure(0)
    assert str(caught.value) == (
        f"shard 0: {plain.far}/shard.0 has {len(change)} bytes, the index says 1200; "
        "it was cut short or replaced, write or copy it again"
    )


def test_local_shards_are_checked_when_asked(plain):
    (plain.far / "shard.0").write_bytes(RAW[0][:-1] + b"!")
    plain.local_store().ensure(0)
    with pytest.raises(HashMismatchError, match=r"^shard 0: .*/shard\.0 has md5 "):
        plain.local_store(validate_hash="md5").ensure(0)


def test_a_local_shard_is_checked_once_in_a_process(plain):
    store = plain.local_store(validate_hash="md5")
    store.ensure(0)
    (plain.far / "shard.0").write_bytes(RAW[0][:-1] + b"!")
    store.ensure(0)


def test_every_file_of_a_shard_is_checked(tmp_path):
    (tmp_path / "data").write_bytes(b"data")
    (tmp_path / "meta").write_bytes(b"meta")
    none = FileTable([""], np.zeros(1, np.int64), [{}])
    index = Index(
        np.arange(2),
        [Schema(TwoFiles(), (), None)],
        np.zeros(1, np.int64),
        {
            "raw_data": table({"data": b"data"}),
            "zip_data": none,
            "raw_meta": table({"meta": b"beta"}),
            "zip_meta": none,
        },
    )
    store = ShardStore(index, tmp_path, None, CacheOptions(validate_hash="sha1"))
    with pytest.raises(HashMismatchError, match=r"meta has sha1"):
        store.ensure(0)


def test_only_the_damaged_file_of_a_shard_is_repaired(tmp_path):
    raw, stored = {"data": b"data", "meta": b"meta"}, {}
    (tmp_path / "far").mkdir()
    for name, content in raw.items():
        stored[name] = gzip.compress(content)
        (tmp_path / "far" / f"{name}.gz").write_bytes(stored[name])
    index = Index(
        np.arange(2),
        [Schema(TwoFiles(), (), "gz")],
        np.zeros(1, np.int64),
        {f"raw_{name}": table({name: content}) for name, content in raw.items()}
        | {f"zip_{name}": table({f"{name}.gz": content}) for name, content in stored.items()},
    )
    near, remote, observer = tmp_path / "near", Remote(tmp_path / "far"), Observer()
    options = CacheOptions(validate_hash="sha1", keep_zip=True)
    ShardStore(index, near, remote, options).ensure(0)
    (near / "data").write_bytes(b"DATA")
    (near / "meta").unlink()
    ShardStore(index, near, remote, options, observer).ensure(0)
    assert ((near / "data").read_bytes(), (near / "meta").read_bytes()) == (b"data", b"meta")
    assert remote.downloads == {"data.gz": 2, "meta.gz": 1}
    assert observer.counters.totals().repairs == 1


def test_a_cache_that_cannot_be_written_to_is_named(plain, tmp_path):
    (tmp_path / "file").touch()
    plain.near = tmp_path / "file" / "cache"
    with pytest.raises(
        StorageError, match=r"/file/cache.*: Not a directory; streamplug needs local="
    ):
        plain.store().ensure(0)


def test_a_full_disk_is_named(plain, monkeypatch):
    def full(key: str, path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    plain.remote.hook = full
    with pytest.raises(
        StorageError, match=r"No space left on device: the disk mounted at .* needed; .* local="
    ):
        plain.store().ensure(0)


def test_a_directory_without_permission_is_named(plain, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(plain.near))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(AccessDenied, match=r"near: Permission denied"):
        plain.store().ensure(0)


def hold_and_stop(place, quota_lock):
    """Download a shard, and stop this process in the midst of it."""
    append = CacheQuota._append

    def stop(*arguments):
        os.kill(os.getpid(), signal.SIGSTOP)
        if quota_lock:
            append(*arguments)

    if quota_lock:
        CacheQuota._append = stop
    else:
        place.remote.hook = stop
    place.store().ensure(0)


@pytest.mark.usefixtures("stalls")
@pytest.mark.parametrize("quota_lock", [False, True])
@pytest.mark.parametrize("limit", [None, 2500])
def test_a_process_that_is_stopped_holds_nobody_up(plain, monkeypatch, caplog, quota_lock, limit):
    monkeypatch.setattr("streamplug.cache.quota._MAX_LOCK_SECONDS", 0.2)
    process = multiprocessing.get_context("fork").Process(
        target=hold_and_stop, args=(plain, quota_lock), daemon=True
    )
    process.start()
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        start = time.monotonic()
        store = plain.store(timeout=0.2, retries=0, cache_limit=limit)
        for shard, raw in enumerate(RAW):
            assert store.ensure(shard)["data"].read_bytes() == raw
        assert store.ensure(0)["data"].read_bytes() == RAW[0]
        assert time.monotonic() - start < 60
        [message] = [m for m in caplog.messages if "has been held by" in m]
        assert f"held by process {process.pid} on {socket.gethostname()} for 0.2 s" in message
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.join()
    assert process.exitcode == 0
    store = plain.store(cache_limit=limit)
    assert store.ensure(0)["data"].read_bytes() == RAW[0]
    assert not list((plain.near / ".streamplug" / "tmp").iterdir())
    # Everything is listed, so that it can be evicted.
    CacheQuota(plain.near, 1).shrink(10**6)
    assert not list(plain.near.glob("shard*"))


@pytest.mark.usefixtures("stalls")
def test_a_slow_holder_of_a_lock_is_waited_for(plain, caplog, waits):
    held, done = threading.Event(), threading.Event()

    def write() -> None:
        with cache_lock(plain.near, "shard.0"), staging_path(plain.near, "shard.0") as part:
            held.set()
            for _ in range(5):
                with part.open("ab") as stream:
                    stream.write(b"x")
                waits.advance(0.4)
            (plain.near / "shard.0").write_bytes(RAW[0])
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert held.wait(60)
    assert plain.store(timeout=0.5, retries=0).ensure(0)["data"].read_bytes() == RAW[0]
    assert done.wait(60)
    thread.join()
    assert not plain.remote.downloads
    assert not caplog.messages


def test_the_file_name_of_a_compression_without_ending_is_that_of_the_raw_file(tmp_path):
    far = tmp_path / "far"
    far.mkdir()
    (far / "shard.0").write_bytes(RAW[0])
    index = index_of({"shard.0": RAW[0]}, {"shard.0": RAW[0]})
    index.schemas = (Schema(Plain(), (), "none"),)
    store = ShardStore(index, tmp_path / "near", Remote(far), CacheOptions(keep_zip=True))
    assert store.ensure(0)["data"].read_bytes() == RAW[0]
    assert index.shard(0).files["data"].zip == FileInfo("shard.0", 1200, hashes(RAW[0]))
