"""Damaged, missing and full caches."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from streamplug.cache import store as store_module
from streamplug.cache.user_cache import source_cache_dir
from streamplug.dataset import StreamingDataset
from streamplug.errors import (
    AccessDenied,
    CorruptShardError,
    DataError,
    HashMismatchError,
    StorageError,
    Transient,
)
from tests.stall_clock import StallClock

FIRST = "shard.00000.mds"


@pytest.fixture
def place(tmp_path, serve, write, no_waiting):
    """A served set of 4 shards without hashes, and where to cache it."""

    class Place:
        far, near = tmp_path / "far", tmp_path / "near"

        def write(self, **arguments):
            self.size = write(self.far, **{"hashes": [], **arguments})
            self.server = serve(self.far)
            return self

        def open(self, **arguments):
            return StreamingDataset(remote=self.server.url, local=str(self.near), **arguments)

        def read(self, **arguments):
            dataset = self.open(**arguments)
            assert [sample["id"] for sample in dataset] == list(range(32))
            for number, sample in enumerate(dataset):
                assert sample["data"] == number.to_bytes(4, "little") * 250

        @property
        def gets(self):
            return self.server.gets[FIRST] + self.server.gets[f"{FIRST}.gz"]

    return Place()


def zeroed(path: Path, start: int = 0) -> None:
    """Do as a machine that lost its power: some pages never reached the disk."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(path.stat().st_size - start))


@pytest.mark.parametrize("compression", [None, "gz"])
@pytest.mark.parametrize("change", ["cut", "longer", "zeros", "empty"])
def test_a_damaged_cached_shard_is_fetched_again(place, compression, change):
    place.write(compression=compression).read()
    path = place.near / FIRST
    if change == "zeros":
        zeroed(path)
    else:
        data = path.read_bytes()
        path.write_bytes({"cut": data[:-1], "longer": data + b"x", "empty": b""}[change])
    place.read()
    assert place.gets == 2


@pytest.mark.parametrize("compression", [None, "gz"])
def test_a_cached_shard_of_another_size_is_reported(place, compression, caplog):
    place.write(compression=compression).read()
    os.truncate(place.near / FIRST, 100)
    dataset = place.open()
    assert len(list(dataset)) == 32
    assert (dataset.stats().repairs, dataset.stats().downloads) == (1, 1)
    assert f"{FIRST} has 100 bytes, the index says" in caplog.text


@pytest.mark.parametrize("compression", [None, "gz"])
def test_damage_inside_is_found_by_its_hash_when_asked_for(place, compression, caplog):
    place.write(compression=compression, hashes=["sha1"]).read()
    zeroed(place.near / FIRST, 5000)
    place.read(validate_hash="sha1")
    assert place.gets == 2
    assert "fetching it again" in caplog.text


def test_a_shard_that_is_damaged_where_it_lies_is_an_error_every_time(place):
    place.write()
    zeroed(place.far / FIRST)
    for number in range(1, 4):
        with pytest.raises(CorruptShardError, match=r"^shard 0 .*the file is damaged"):
            place.read()
        assert place.gets == 2 * number  # once more each time, never served, never kept
        assert not (place.near / FIRST).exists()


@pytest.mark.parametrize("validate_hash", [None, "sha1"])
def test_a_hash_that_does_not_fit_is_an_error_every_time(place, validate_hash):
    place.write(hashes=["sha1"])
    zeroed(place.far / FIRST, 5000)
    dataset = place.open(validate_hash=validate_hash)
    for _ in range(3):
        with pytest.raises(HashMismatchError):
            dataset[0]
        with pytest.raises(HashMismatchError):
            list(dataset)
    for _ in range(2):
        with pytest.raises(HashMismatchError):
            place.read(validate_hash=validate_hash)
    assert not (place.near / FIRST).exists()


@pytest.mark.parametrize("limit", [None, 10_000_000])
def test_a_damaged_kept_file_is_downloaded_again(place, limit):
    place.write(compression="gz").read(keep_zip=True)
    (place.near / FIRST).unlink()
    kept = place.near / f"{FIRST}.gz"
    data = bytearray(kept.read_bytes())
    data[30] ^= 0xFF
    kept.write_bytes(data)
    place.read(keep_zip=True, cache_limit=limit)
    assert place.gets == 2
    assert gzip.decompress(kept.read_bytes()) == (place.near / FIRST).read_bytes()


def test_a_damaged_raw_file_is_replaced_by_its_compressed_one_where_the_set_lies(place):
    place.write(compression="gz", hashes=["sha1"]).read(keep_zip=True)
    raw = bytearray((place.near / FIRST).read_bytes())
    raw[-1] ^= 0xFF
    (place.near / FIRST).write_bytes(raw)
    shutil.rmtree(place.near / ".streamplug")  # a data set of its own, which is never changed
    for _ in range(2):
        dataset = StreamingDataset(local=str(place.near), validate_hash="sha1")
        for number, sample in enumerate(dataset):
            assert sample["data"] == number.to_bytes(4, "little") * 250
    assert (place.near / FIRST).read_bytes() == raw


def test_raw_and_compressed_copies_are_both_kept(place):
    place.write(compression="gz").read(keep_zip=True)
    for _ in range(2):
        place.read(keep_zip=True)
        assert (place.near / FIRST).exists()
        assert (place.near / f"{FIRST}.gz").exists()
    place.read()
    assert (place.near / f"{FIRST}.gz").exists()
    assert place.gets == 1


def test_a_shard_that_was_read_while_it_was_healed_stays_readable(place):
    place.write()
    reading = place.open()
    before = reading[0]
    (place.near / FIRST).unlink()
    assert reading[1]["id"] == 1
    assert place.open()[0].keys() == before.keys()
    assert reading[0]["data"] == before["data"]


def test_local_data_is_never_removed(tmp_path, write):
    write(tmp_path / "set")
    zeroed(tmp_path / "set" / FIRST)
    with pytest.raises(DataError, match="write or copy it again"):
        StreamingDataset(local=str(tmp_path / "set"))[0]
    assert (tmp_path / "set" / FIRST).exists()


def test_a_limit_without_a_cache_is_ignored_and_says_so(tmp_path, write, caplog):
    write(tmp_path / "set")
    for arguments in ({"local": str(tmp_path / "set")}, {"remote": str(tmp_path / "set")}):
        caplog.clear()
        dataset = StreamingDataset(**arguments, cache_limit=100)
        assert [sample["id"] for sample in dataset] == list(range(32))
        assert "cache_limit=100 is ignored: the data set is read in place" in caplog.text
    assert len(list((tmp_path / "set").glob("shard*"))) == 4


def test_a_compressed_set_that_is_read_in_place_loses_nothing(tmp_path, write):
    write(tmp_path / "set", compression="gz")
    for _ in range(2):
        dataset = StreamingDataset(local=str(tmp_path / "set"), cache_limit=20_000)
        assert [sample["id"] for sample in dataset] == list(range(32))
    assert len(list((tmp_path / "set").glob("shard*.gz"))) == 4
    (unpacked,) = source_cache_dir(str(tmp_path / "set")).glob("shards-*")
    zeroed(next(unpacked.iterdir()))
    assert [sample["id"] for sample in StreamingDataset(local=str(tmp_path / "set"))] == list(
        range(32)
    )
    assert StreamingDataset(local=str(tmp_path / "set"))[3]["id"] == 3  # unpacked again


# -- what the system may do ------------------------------------------------------


def test_a_cache_that_vanishes_is_made_again(place):
    place.write()
    dataset = place.open()
    assert dataset[0]["id"] == 0
    shutil.rmtree(place.near)
    assert [sample["id"] for sample in dataset] == list(range(32))
    place.read()


def test_a_cache_that_vanishes_during_a_download_is_made_again(place):
    place.write()
    dataset = place.open(cache_limit=1 << 20)

    def vanish(handler):
        shutil.rmtree(place.near)
        place.server.hooks.clear()
        return False

    place.server.hooks[FIRST] = vanish
    assert dataset[0]["id"] == 0
    assert [sample["id"] for sample in dataset] == list(range(32))


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_an_error_that_says_what_to_do(place, small_disk):
    place.write(shards=40)
    place.near = small_disk / "near"
    dataset = place.open()
    said = rf"near.*: No space left on device: the disk mounted at {small_disk} has .*cache_limit="
    with pytest.raises(StorageError, match=said):
        list(dataset)
    assert dataset[0]["id"] == 0  # what is there is still served
    assert not list((place.near / ".streamplug" / "tmp").iterdir())
    for path in place.near.glob("shard*"):
        assert path.read_bytes() == (place.far / path.name).read_bytes()


@pytest.mark.parametrize(
    "options", [{}, {"on_error": "substitute", "batch_size": 4}], ids=["raise", "substitute"]
)
def test_a_limited_cache_on_a_disk_that_others_fill_gets_by_with_less(place, small_disk, options):
    place.write(shards=40)
    place.near = small_disk / "near"
    # What is left holds some shards and the records of the cache: a page for each of 40 lock files, too.
    (small_disk / "other").write_bytes(bytes(120_000))
    dataset = place.open(cache_limit="100%", **options)
    assert [sample["id"] for sample in dataset] == list(range(320))
    assert [sample["id"] for sample in dataset] == list(range(320))


def test_a_file_that_is_too_large_for_its_limit_evicts_no_others(place):
    place.write()
    dataset = place.open(cache_limit=1 << 20)
    assert dataset[0]["id"] == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (place.size - 1, hard))
    try:
        with pytest.raises(StorageError, match=r"near.*: File too large; .*ulimit -f"):
            dataset[8]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (place.near / FIRST).exists()
    assert [sample["id"] for sample in dataset] == list(range(32))


def test_a_whole_cache_that_cannot_be_written_to_is_read(place, small_disk):
    place.write()
    place.near = small_disk / "near"
    place.read(cache_limit=1 << 20)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    place.read()
    place.read(cache_limit=1 << 20)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    (place.near / FIRST).unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(
        StorageError, match=r"near.*: Read-only file system; streamplug needs local="
    ):
        place.read()


def test_a_file_that_may_not_be_read_is_named(place, monkeypatch):
    place.write().read()
    opened = Path.open

    def refuse(self, *args, **kwargs):
        if self.name == FIRST:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(AccessDenied, match=rf"near/{FIRST}: Permission denied"):
        place.open()[0]


# -- evicted while somebody wants it ---------------------------------------------


def test_a_shard_that_is_evicted_before_it_is_opened_is_fetched_again(place, monkeypatch):
    place.write().read()
    ensure, thefts = store_module.ShardStore.ensure, [0]

    def stolen(self, shard, opened):
        paths = ensure(self, shard, opened)
        if thefts[0]:
            thefts[0] -= 1
            next(iter(paths.values())).unlink()
        return paths

    monkeypatch.setattr(store_module.ShardStore, "ensure", stolen)
    dataset = place.open(cache_limit=1 << 20)
    thefts[0] = 1
    assert dataset[0]["id"] == 0
    assert place.gets == 2
    # One that was fetched is open already.
    thefts[0] = 1
    (place.near / FIRST).unlink()
    assert place.open(cache_limit=1 << 20)[0]["id"] == 0
    assert thefts[0] == 0
    assert place.gets == 3


def test_a_shard_that_is_evicted_again_and_again_is_an_error(place, monkeypatch):
    place.write().read()
    ensure = store_module.ShardStore.ensure

    def stolen(self, shard, opened):
        paths = ensure(self, shard)
        next(iter(paths.values())).unlink()
        return paths

    monkeypatch.setattr(store_module.ShardStore, "ensure", stolen)
    with pytest.raises(StorageError, match=r"shard 1 was evicted 10 times .*raise cache_limit="):
        place.open(cache_limit=1 << 20)[8]


def test_mappings_of_evicted_shards_are_let_go(place, monkeypatch):
    monkeypatch.setattr("streamplug.read.open_shards.SWEEP_SECONDS", -1.0)
    place.write(shards=24)

    def mapped():
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum(str(place.near / "shard") in line for line in lines)

    dataset = place.open(cache_limit=100 * place.size)
    for shard in range(10):
        assert dataset[8 * shard]["id"] == 8 * shard
    assert mapped() == 10
    for path in sorted(place.near.glob("shard*"))[:7]:
        path.unlink()
    assert dataset[8 * 10]["id"] == 80
    assert mapped() == 4
    limited = place.open(cache_limit=12 * place.size)
    del dataset
    for shard in range(24):
        assert limited[8 * shard]["id"] == 8 * shard
    assert mapped() <= 3  # a quarter of the limit


def test_a_shard_that_is_read_for_long_is_not_the_first_to_go(place, monkeypatch):
    monkeypatch.setattr("streamplug.read.open_shards.USED_SECONDS", -1.0)
    place.write(shards=12)
    dataset = place.open(cache_limit=5 * place.size)
    for shard in range(1, 12):
        for sample in (0, 8 * shard, 1):
            assert dataset[sample]["id"] == sample
    assert place.gets == 1
    assert place.server.gets["shard.00001.mds"] == 1
    assert len(list(place.near.glob("shard*"))) <= 5


# -- downloads that stand still ----------------------------------------------------


@pytest.mark.parametrize("sent", [0, 3000])
def test_a_server_that_stops_sending_is_given_up(place, sent, monkeypatch):
    place.write()
    clock, gate = StallClock(monkeypatch), threading.Event()

    def stall(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str((place.far / FIRST).stat().st_size))
        handler.end_headers()
        handler.wfile.write((place.far / FIRST).read_bytes()[:sent])
        handler.wfile.flush()
        clock.hang(FIRST)
        gate.wait(600)
        handler.close_connection = True
        return True

    place.server.hooks[FIRST] = stall
    try:
        with pytest.raises(Transient, match=rf"127.*/{FIRST}: nothing arrived for 0.3 s"):
            place.open(download_timeout=0.3, download_retry=1, download_patience=0)[0]
        assert place.gets == 2
        place.server.hooks.clear()
        place.read()
    finally:
        gate.set()


def test_a_timeout_that_means_nothing_is_refused(place):
    from streamplug.errors import ConfigError

    place.write()
    for value in (0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="download_timeout="):
            place.open(download_timeout=value)
