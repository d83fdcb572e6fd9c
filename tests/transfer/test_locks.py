from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamplug.cache.quota import CacheQuota
from streamplug.errors import StorageError
from streamplug.transfer import locks
from streamplug.transfer.locks import (
    cache_lock,
    file_lock,
    lock_slot,
    lock_slot_path,
    make_sibling_state,
    state_directory,
    try_file_lock,
)


def test_threads_take_turns(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with cache_lock(tmp_path, "shard"):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1


def test_a_lock_tells_whether_it_is_free(tmp_path):
    path = lock_slot_path(tmp_path, lock_slot("shard"))
    with cache_lock(tmp_path, "shard"), try_file_lock(path) as free:
        assert not free
    with try_file_lock(path) as free:
        assert free
        with try_file_lock(path) as again:
            assert not again


def test_who_is_left_behind_waits_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "abandoned", lambda: True)
    again = cache_lock(tmp_path, "shard")
    gone = pytest.raises(StorageError, match="the parent process has ended")
    with cache_lock(tmp_path, "shard"), gone, again:
        pass


def test_a_child_does_not_prolong_its_parents_lock(tmp_path):
    path, context = tmp_path / "lock", multiprocessing.get_context("fork")
    runs, gate = context.Event(), context.Event()

    def wait():
        runs.set()
        gate.wait()

    with file_lock(path, "to test"):
        child = context.Process(target=wait)
        child.start()
        assert runs.wait(60)
        # As if this process had died: its copy is closed without a word to the system.
        (descriptor,) = locks._open
        os.close(descriptor)
        locks._open.clear()
        with try_file_lock(path) as free:
            assert free
    gate.set()
    child.join()


def test_a_child_that_drops_its_parents_lock_keeps_its_own(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"

    def drop(descriptor):
        os.closerange(descriptor, descriptor + 1)  # if the start of the process has used the number
        while os.dup(1) != descriptor:
            pass
        os.close(descriptor)
        with file_lock(theirs, "to test"):
            assert list(locks._open) == [descriptor]
            held.close()
            with try_file_lock(theirs) as free:
                assert not free

    held = ExitStack()
    with held:
        held.enter_context(file_lock(ours, "to test"))
        (descriptor,) = locks._open
        child = multiprocessing.get_context("fork").Process(target=drop, args=(descriptor,))
        child.start()
        child.join()
        with try_file_lock(ours) as free:
            assert not free
    assert child.exitcode == 0


@pytest.fixture
def lockless(monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(locks, "_warned", set())


def test_without_locks_work_goes_on_and_says_so_once(tmp_path, lockless, caplog):
    for _ in range(3):
        with cache_lock(tmp_path, "shard"):
            pass
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "this file system has no locks"
    ]
    with try_file_lock(tmp_path / "lock") as free:
        assert not free  # nobody can tell


def test_without_locks_a_limit_is_refused(tmp_path, lockless):
    with (
        pytest.raises(
            StorageError, match=r"has no locks, which cache_limit= needs; choose a local="
        ),
        CacheQuota(tmp_path, 100).reserve("shard", 10),
    ):
        pass


def test_what_else_the_system_refuses_is_raised(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output"), cache_lock(tmp_path, "shard"):
        pass
    with pytest.raises(OSError, match="Input/output"), try_file_lock(tmp_path / "lock"):
        pass
    assert locks._open == {}


def test_the_state_of_a_cache_is_in_it_or_beside_it(tmp_path, monkeypatch):
    new, used = tmp_path / "deep" / "new", tmp_path / "used"
    (used / ".streamplug").mkdir(parents=True)
    for cache in (new, used):
        assert state_directory(cache) == cache / ".streamplug"
        make_sibling_state(cache)
        make_sibling_state(cache)
    assert state_directory(new) == tmp_path / "deep" / ".new.streamplug"
    assert state_directory(used) == used / ".streamplug"
    monkeypatch.chdir(tmp_path)
    make_sibling_state(Path())
    assert state_directory(Path()) == Path(".streamplug")


def test_the_state_is_in_the_cache_where_there_is_no_place_beside_it(tmp_path):
    (tmp_path / "file").touch()
    make_sibling_state(tmp_path / "file" / "cache")
    assert state_directory(tmp_path / "file" / "cache").parent.name == "cache"
    for name in ("c" * 244, "ä" * 122):  # whose sibling would have a name that is too long
        cache = tmp_path / name
        make_sibling_state(cache)
        assert state_directory(cache) == cache / ".streamplug"
