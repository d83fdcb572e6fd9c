"""Has freed memory kept for what is read or written next."""

from __future__ import annotations

from functools import cache

_BLOCK = 31 << 20


@cache
def keep_freed_memory() -> None:
    """Have the C library keep some memory when it is freed, once in a process.

    glibc hands memory back from the end of its heap if more is free there than twice the largest block
    that it mapped by itself and that was freed: 256 KiB at first, less than a batch of images. Each batch
    would get all its pages anew from the system, which takes longer than to copy to them. It adapts to
    larger blocks, up to 32 MiB, of which there are none where samples are many objects: so it is shown
    one, which is never touched. Other C libraries take no notice, nor does glibc where
    MALLOC_TRIM_THRESHOLD_ is set.
    """
    bytes(_BLOCK)
