"""Worker processes for tests."""

from __future__ import annotations

import atexit
import multiprocessing
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.pool import Pool


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
