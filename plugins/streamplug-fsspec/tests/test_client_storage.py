"""Storages open one client per process, and list, upload and read ranges by their primitives."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time

import pytest
from streamplug_fsspec.client_storage import ClientStorage

from streamplug.errors import NotFound, StorageError, Transient
from streamplug.plugin_kit.cancellation import Cancelled, Scope, inside
from streamplug.types import ObjectInfo


class Memory(ClientStorage):
    """Objects in a dict, which is the client."""

    def __init__(self, url="mem://bucket", **options):
        super().__init__(url, **options)
        self.opened, self.closed = [], []

    def open_client(self):
        time.sleep(0.05)
        self.opened.append(os.getpid())
        return {"a/b": b"12345", "a/.streamplug-1": b"half", "ab": b"6"}

    def close_client(self, client):
        self.closed.append(client)

    def read(self, key):
        with self.translated(key):
            return self.client()[key]

    def read_range(self, key, start, stop):
        return self.read(key)[start:stop]

    def download(self, key, path):
        path.write_bytes(self.read(key))

    def write(self, key, data):
        self.check_key(key)
        self.client()[key] = bytes(data)

    def send_file(self, path, key):
        self.write(key, path.read_bytes())

    def stat(self, key):
        return ObjectInfo(key, len(self.read(key)))

    def objects(self, folder):
        for key, data in self.client().items():
            if key.startswith(folder):
                yield ObjectInfo(key, len(data))

    def delete(self, key):
        self.client().pop(key, None)

    def translate(self, error, url):
        return NotFound(f"{url} does not exist") if isinstance(error, KeyError) else None


def test_threads_that_come_first_together_share_one_client():
    storage = Memory()
    threads = [threading.Thread(target=storage.read, args=("ab",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert storage.opened == [os.getpid()]


def test_a_closed_storage_opens_another_client():
    storage = Memory()
    client = storage.client()
    storage.close()
    storage.close()
    assert storage.closed == [client]
    assert storage.client() is not client


def test_dropping_a_replaced_client_keeps_the_new_one():
    storage = Memory()
    broken = storage.client()
    storage.drop_client(broken)
    client = storage.client()
    storage.drop_client(broken)
    assert storage.client() is client


def test_a_pickled_storage_has_no_client():
    storage = Memory()
    storage.client()
    assert pickle.loads(pickle.dumps(storage)).__dict__["_client"] is None


def test_a_forked_process_opens_a_client_of_its_own():
    storage = Memory()
    storage.client()
    pid = os.fork()
    if not pid:  # closing the inherited client would close the parent's connections
        storage.read("ab")
        os._exit(0 if storage.opened[1:] == [os.getpid()] and not storage.closed else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_lists_what_begins_with_the_prefix_without_staging_files():
    assert [o.key for o in Memory().list()] == ["a/b", "ab"]
    assert [o.key for o in Memory().list("a/")] == ["a/b"]


def test_uploads_only_files(tmp_path):
    storage = Memory()
    with pytest.raises(NotFound, match="to be uploaded to mem://bucket/k"):
        storage.upload(tmp_path / "none", "k")
    (tmp_path / "some").write_bytes(b"data")
    storage.upload(tmp_path / "some", "k")
    assert storage.read("k") == b"data"


def test_reads_several_ranges():
    assert Memory(max_concurrency=1).read_ranges("a/b", [(0, 1), (2, 9)]) == [b"1", b"345"]
    assert Memory().read_ranges("a/b", []) == []


def test_no_further_range_is_read_for_a_consumer_that_stopped():
    storage, scope, read = Memory(max_concurrency=2), Scope(), []

    def read_range(key, start, stop):
        read.append(start)
        if start == 3:
            scope.stop()
        return b""

    storage.read_range = read_range
    with inside(scope), pytest.raises(Cancelled):
        storage.read_ranges("a/b", [(start, start + 1) for start in range(100)])
    assert len(read) < 10


HANG = """
import threading
from streamplug_fsspec import read_concurrently
from streamplug.transfer.stall_timeout import StalledError, run_with_timeout

hang = lambda part: threading.Event().wait()
try:
    run_with_timeout(lambda: read_concurrently(hang, [(0, 1), (1, 2)], 8), "mem://bucket/k", 0.1)
except StalledError:
    print("stalled")
"""


def test_ranges_that_hang_do_not_keep_the_process_from_ending():
    command = [sys.executable, "-c", HANG]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "stalled\n"


def test_the_error_of_the_first_range_that_fails_is_raised():
    storage = Memory()

    def read_range(key, start, stop):
        if start == 1:
            time.sleep(0.05)
        raise IndexError(start)

    storage.read_range = read_range
    with pytest.raises(IndexError, match=r"^0$"):
        storage.read_ranges("a/b", [(0, 1), (1, 2)])


def test_exceptions_become_storage_errors():
    with pytest.raises(NotFound, match="mem://bucket/x does not exist"):
        Memory().read("x")
    with pytest.raises(StorageError, match="leads out of the location"):
        Memory().write("../x", b"")
    with pytest.raises(Transient), Memory().translated("x"):
        raise ConnectionError("secret")
