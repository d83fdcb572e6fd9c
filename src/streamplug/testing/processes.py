"""One other process for a test, which ends by itself."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool


@contextmanager
def other_process(method: str) -> Iterator[Pool]:
    """Give a pool of one process that was started by ``"fork"`` or ``"spawn"``."""
    with warnings.catch_warnings():
        # Threads of other tests may make Python 3.12 and later warn of fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context(method).Pool(1)
    try:
        yield pool
    except BaseException:
        pool.terminate()
        raise
    else:
        pool.close()  # lets it end by itself, where leaving a `with` would kill it
    finally:
        pool.join()
