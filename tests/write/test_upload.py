from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from streamplug import MDSWriter
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import StorageError, Transient, WriterError
from streamplug.plugin_kit import file_commit
from streamplug.plugin_kit.file_commit import SYNC_GROUP_FILES
from streamplug.write.upload import Uploader


class Far(LocalStorage):
    """Files of a directory; uploads wait for a gate and can be made to fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.begun = 0

    def upload(self, path: Path, key: str) -> None:
        self.begun += 1
        assert self.gate.wait(60)
        if self.error:
            raise self.error
        super().upload(path, key)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)


@pytest.fixture
def far(tmp_path):
    return Far(tmp_path / "far")


def uploader(far: Far, folder: Path, *, keep_local: bool = True, retries: int = 0) -> Uploader:
    for number in range(10):
        (folder / f"file.{number}").write_text(str(number))
    return Uploader(
        far, folder, keep_local=keep_local, durable=True, retries=retries, num_threads=2
    )


def threads() -> list[str]:
    return [
        t.name
        for t in threading.enumerate()
        if t.name.startswith(("streamplug-upload", "streamplug-sync"))
    ]


@pytest.mark.parametrize("keep_local", [True, False])
def test_files_are_sent_in_the_background(tmp_path, far, keep_local):
    it = uploader(far, tmp_path, keep_local=keep_local)
    for number in range(10):
        it.put(f"file.{number}")
    it.drain()
    it.close()
    assert {p.read_text() for p in (tmp_path / "far").iterdir()} == set("0123456789")
    assert (tmp_path / "file.3").exists() is keep_local
    assert threads() == []


def test_no_more_files_wait_than_twice_the_threads(tmp_path, far):
    it = uploader(far, tmp_path)
    far.gate.clear()
    for number in range(4):
        it.put(f"file.{number}")
    threading.Timer(0.1, far.gate.set).start()
    it.put("file.4")  # waits for the first
    assert far.gate.is_set()
    it.drain()
    it.close()


def test_a_failure_is_told_at_a_later_call(tmp_path, far):
    it = uploader(far, tmp_path)
    far.error = StorageError("no")
    it.put("file.0")
    with pytest.raises(StorageError, match=r"^no$"):
        it.drain()
    it.close()


def test_a_failure_is_told_when_the_queue_is_full(tmp_path, far):
    it = uploader(far, tmp_path)
    far.error = StorageError("no")
    for number in range(4):
        it.put(f"file.{number}")
    with pytest.raises(StorageError, match=r"^no$"):
        it.put("file.4")
    it.close()


def test_passing_failures_are_tried_again_so_often(tmp_path, far):
    it = uploader(far, tmp_path, retries=3)
    far.error = Transient("busy")
    it.put("file.0")
    with pytest.raises(Transient, match="gave up after 4 attempts; raise retry= for more"):
        it.drain()
    assert far.begun == 4
    it.close()


def test_closing_drops_what_has_not_begun(tmp_path, far):
    it = uploader(far, tmp_path)
    far.gate.clear()
    for number in range(4):
        it.put(f"file.{number}")
    end = time.monotonic() + 60
    while far.begun < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    threading.Timer(0.1, far.gate.set).start()
    it.close()
    assert far.begun == 2
    assert threads() == []


class Disk:
    """Records the names of files that are begun and synced; syncs can wait, or fail for one file."""

    def __init__(self, monkeypatch) -> None:
        self.synced: list[str] = []
        self.begun: list[str] = []
        self.opened: dict[int, str] = {}
        self.max_open = 0
        self.gate = threading.Event()
        self.gate.set()
        self.bad = ""
        self.bad_close = ""
        self._open, self._close = os.open, os.close
        for name in ("fsync", "open", "close"):
            monkeypatch.setattr(os, name, getattr(self, name))
        monkeypatch.setattr(file_commit, "_start_writing", self.begin)

    def open(self, path, *args: int, **kwargs: int) -> int:
        descriptor = self._open(path, *args, **kwargs)
        self.opened[descriptor] = Path(path).name
        self.max_open = max(self.max_open, len(self.opened))
        return descriptor

    def close(self, descriptor: int) -> None:
        name = self.opened.pop(descriptor, "")
        self._close(descriptor)
        if name and name == self.bad_close:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def begin(self, descriptor: int) -> None:
        self.begun.append(self.opened[descriptor])

    def fsync(self, descriptor: int) -> None:
        assert self.gate.wait(60)
        if self.opened[descriptor] == self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.synced.append(self.opened[descriptor])


def local_files(folder: Path, number: int) -> tuple[Uploader, list[str]]:
    names = [f"file.{number:03d}" for number in range(number)]
    for name in names:
        (folder / name).write_text(name)
    it = Uploader(None, folder, keep_local=True, durable=True, retries=0, num_threads=2)
    return it, names


@pytest.mark.parametrize("number", [1, 2, SYNC_GROUP_FILES + 1, 3 * SYNC_GROUP_FILES])
def test_all_local_files_are_synced(tmp_path, monkeypatch, number):
    it, names = local_files(tmp_path, number)
    disk = Disk(monkeypatch)
    disk.gate.clear()
    for name in names:
        it.put(name)  # does not wait for the disk
    disk.gate.set()
    it.drain()
    assert disk.synced == names
    assert disk.max_open == 1
    it.put(names[0])
    it.drain()
    assert disk.synced == [*names, names[0]]
    it.close()
    assert disk.opened == {}


def test_files_are_synced_in_groups_that_the_disk_begins_at_once(tmp_path, monkeypatch):
    _, names = local_files(tmp_path, 2 * SYNC_GROUP_FILES + 1)
    disk = Disk(monkeypatch)
    begun = []
    monkeypatch.setattr(disk, "fsync", lambda _: begun.append(len(disk.begun)))
    monkeypatch.setattr(os, "fsync", disk.fsync)
    file_commit.sync_files(tmp_path / name for name in names)
    number = SYNC_GROUP_FILES
    assert begun == [number] * number + [2 * number] * number + [
        2 * number
    ]  # the last one is alone


def test_groups_of_large_files_are_small(tmp_path, monkeypatch):
    _, names = local_files(tmp_path, 8)
    for name in names:
        os.truncate(tmp_path / name, 25 << 20)
    disk = Disk(monkeypatch)
    begun = []
    monkeypatch.setattr(os, "fsync", lambda _: begun.append(len(disk.begun)))
    file_commit.sync_files(tmp_path / name for name in names)
    assert begun == [3, 3, 3, 6, 6, 6, 8, 8]


def test_systems_that_cannot_begin_early_sync_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(file_commit, "system_call", lambda *_: None)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    _, names = local_files(tmp_path, 5)
    file_commit.sync_files(tmp_path / name for name in names)
    assert len(synced) == 5


def test_a_file_that_comes_as_the_thread_ends_is_synced(tmp_path, monkeypatch):
    it, names = local_files(tmp_path, 1)
    disk = Disk(monkeypatch)
    ending = Future()  # of a thread that found no more files, but has not ended
    it._syncs._running = ending
    it.put(names[0])
    ending.set_result(None)
    it.drain()
    assert disk.synced == names
    it.close()


@pytest.mark.parametrize("number", [0, 1, 5, 9])
@pytest.mark.parametrize("when", ["bad", "bad_close"])
def test_an_error_of_a_sync_names_the_file(tmp_path, monkeypatch, number, when):
    it, names = local_files(tmp_path, 10)
    disk = Disk(monkeypatch)
    setattr(disk, when, names[number])

    def put_all() -> None:
        for name in names:
            it.put(name)
        it.drain()

    with pytest.raises(StorageError, match=rf"{names[number]}: {os.strerror(errno.EIO)}"):
        put_all()
    it.close()
    assert disk.opened == {}


def test_an_error_of_a_sync_is_told_at_the_next_file(tmp_path, monkeypatch):
    it, names = local_files(tmp_path, 2)
    disk = Disk(monkeypatch)
    disk.bad = names[0]

    def put_slowly() -> None:
        for _ in range(600):
            it.put(names[1])
            time.sleep(0.01)

    it.put(names[0])
    with pytest.raises(StorageError, match=disk.bad):
        put_slowly()
    it.close()


def test_closing_drops_files_that_are_not_synced_yet(tmp_path, monkeypatch):
    it, names = local_files(tmp_path, 3 * SYNC_GROUP_FILES)
    disk = Disk(monkeypatch)
    disk.gate.clear()
    for name in names:
        it.put(name)
    closing = threading.Thread(target=it.close)
    closing.start()
    end = time.monotonic() + 60
    while it._syncs._waiting:
        assert time.monotonic() < end
        time.sleep(0.01)
    disk.gate.set()
    closing.join(60)
    assert len(disk.synced) <= SYNC_GROUP_FILES
    assert threads() == []


def test_no_index_is_written_if_another_writer_takes_over_while_files_are_synced(
    tmp_path, monkeypatch
):
    options = {"columns": {"b": "bytes"}, "size_limit": "1kb"}
    first = MDSWriter(out=tmp_path / "set", **options)
    disk = Disk(monkeypatch)
    disk.gate.clear()
    for _ in range(6):
        first.write({"b": b"x" * 600})
    with ThreadPoolExecutor(2) as pool:
        finish = pool.submit(first.finish)
        end = time.monotonic() + 60
        while first._state.name != "FINISHING":
            assert time.monotonic() < end
            time.sleep(0.01)
        takeover = pool.submit(MDSWriter, out=tmp_path / "set", exist_ok=True, **options)
        while first._state.name != "REPLACED":
            assert time.monotonic() < end
            time.sleep(0.01)
        disk.gate.set()
        with pytest.raises(WriterError, match="another writer was started"):
            finish.result(60)
    second = takeover.result(60)
    second.write({"b": b"y"})
    second.finish()
    names = {path.name for path in (tmp_path / "set").iterdir()}
    assert names == {"index.json", "shard.00000.mds"}
