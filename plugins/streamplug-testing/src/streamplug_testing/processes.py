"""Worker processes for tests."""

from __future__ import annotations

import atexit
import multiprocessing
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.pool import Pool

from streamplug.interfaces import Storage


@contextmanager
def other_process(method: str) -> Iterator[Pool]:
    """Yield a pool of one process that was started by ``"fork"`` or ``"spawn"``.

    A spawned process takes a second to start and inherits nothing, so it is reused unless a test failed.
    """
    pool = _spawned() if method == "spawn" else _started(method)
    try:
        yield pool
    except BaseException:
        _spawned.cache_clear()
        pool.terminate()
        pool.join()
        raise
    if method != "spawn":
        _end(pool)


@cache
def _spawned() -> Pool:
    pool = _started("spawn")
    atexit.register(_end, pool)
    return pool


def _started(method: str) -> Pool:
    with warnings.catch_warnings():
        # Python 3.12 and later warn about fork with threads, such as those of other tests.
        warnings.simplefilter("ignore", DeprecationWarning)
        return multiprocessing.get_context(method).Pool(1)


def _end(pool: Pool) -> None:
    pool.close()  # unlike `with`, which terminates the process
    pool.join()


def read_in_child(method: str, storage: Storage, key: str) -> bytes:
    """Return an object's content, read by a process started by ``"fork"`` or ``"spawn"``.

    It reads a range and the size, too.
    """
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_read, args=(theirs, storage, key))  # type: ignore[attr-defined]  # abstract
    with warnings.catch_warnings():
        # Python 3.12 and later warn about fork with threads, such as those of clients and other tests.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    try:
        assert ours.poll(120), "the child hangs"
        result: bytes | str = ours.recv()
    finally:
        ours.close()
        child.join(20)
        if child.is_alive():
            child.kill()
            child.join()
    assert isinstance(result, bytes), result
    return result


def _read(connection: Connection, storage: Storage, key: str) -> None:
    try:
        data = storage.read(key)
        assert storage.read_range(key, 1, 5) == data[1:5]
        assert storage.stat(key).size == len(data)
    except BaseException:  # noqa: BLE001 - reported by the test
        connection.send(traceback.format_exc())
    else:
        connection.send(data)
    finally:
        connection.close()


def count_leaks(errors: str) -> int:
    """Return the number of semaphores and blocks of shared memory that a process left behind.

    Those that are already removed do not count: a process may end while a thread of one of torch's queues has
    removed its lock, but not yet reported that to the resource tracker.

    Args:
        errors: Standard error of the process, which has the warnings of the resource tracker.
    """
    reported = sum(map(int, re.findall(r"appear to be (\d+) leaked", errors)))
    return reported - len(re.findall(r"resource_tracker: '[^']*': \[Errno 2\]", errors))
