"""Tuning of the C allocator so that freed memory is reused."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache

_FREED_BLOCK_BYTES = 31 << 20


@cache
def keep_freed_memory() -> None:
    """Make glibc's allocator keep freed memory, once in a process.

    glibc returns memory at the end of its heap to the system if more is free there than twice the largest
    freed block that it had mapped separately: 256 KiB at first, less than a batch of images. Each batch would
    then get all of its pages from the system again, which takes longer than to copy to them. The threshold
    adapts to larger blocks, up to 32 MiB, but there are none if samples consist of many objects: so one is
    allocated and freed here, without being touched. This has no effect on other C libraries, or if
    MALLOC_TRIM_THRESHOLD_ is set. Without it, the loader of `bench_read.py jpeg` takes 1.13 times as long,
    and `bench_read.py tokens` by sample 1.05 times.
    """
    bytes(_FREED_BLOCK_BYTES)


_M_ARENA_MAX = -8  # a parameter of glibc's mallopt


@cache
def share_freed_memory() -> None:
    """Let the threads of this process share glibc's heap, before threads decode whole batches.

    Otherwise each of them has one of its own, which keeps what it has freed: two threads that crop images
    take 80 MB more in ``tests/benchmarks/bench_workers.py``, at the same rate. Threads that have used another
    heap keep it. This has no effect on other C libraries, or if MALLOC_ARENA_MAX is set.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError, OSError, TypeError):  # no glibc
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
