"""Tuning of the C allocator so that freed memory is reused."""

from __future__ import annotations

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
