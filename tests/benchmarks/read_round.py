"""Measures one side of bench_read.py: two epochs, of which each ends in time or is cut."""

from __future__ import annotations

import gc
import math
import os
import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from read_sides import ACCESSES, Epochs, Side

_AT_ONCE = 64
"""Samples between two looks at the clock."""


def processor() -> float:
    """Return the seconds of processors that this process and its children took so far."""
    own = time.process_time()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own + ended.ru_utime + ended.ru_stime + sum(map(_of_child, children("self")))


def children(pid: str) -> Iterator[str]:
    """Yield the processes that a process started and that still run."""
    with suppress(OSError):  # it ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from (thread / "children").read_text().split()


def _of_child(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory() -> dict[str, float]:
    """Return, in MB, the peak of what is resident, mapped files too, and what is this process's own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = dict(line.removesuffix(" kB").split(":") for line in lines if line.endswith(" kB"))
    return {"rss": int(sizes["VmHWM"]) / 1e3, "anonymous": int(sizes["RssAnon"]) / 1e3}


def take(items: Iterator[Any], most: int) -> int:
    """Drop up to so many items as they come; return how many there were."""
    numbers = count()
    deque(zip(islice(items, most), numbers), maxlen=0)
    return next(numbers)


def epoch(
    items: Iterable[Any], size: int, began: float, seconds: float, enough: float
) -> dict[str, float]:
    """Read an epoch; after so many seconds only if there were enough samples until then.

    Returns:
        Samples, seconds until the first and from it on, those of the processor per sample, and whether
        there was not enough time.
    """
    # Some data sets are their own iterators, and begin anew whenever one is asked for.
    iterator = chain(items)
    take(iterator, 1)
    first, busy = time.perf_counter(), processor()
    each, rows, cut = max(_AT_ONCE // size, 1), 0, False
    while not cut and (taken := take(iterator, each)):
        rows += taken * size
        cut = time.perf_counter() - first > seconds and rows < enough
    ended = time.perf_counter()
    used = (processor() - busy) / max(rows, 1)
    found = {"wait": first - began, "rows": rows, "seconds": ended - first}
    return {**found, "processor": used, "cut": cut}


def measure(side: Side, data: Path, samples: int, seconds: float) -> dict[str, Any]:
    """Read two epochs: the first finds files that are in the page cache but not yet mapped.

    Raises:
        ValueError: If an epoch has too few samples.
    """
    began = time.perf_counter()
    epochs: Epochs = side.read(data / side.layout, samples)
    whole = min(samples, ACCESSES) if side.what == "access" else samples
    found: dict[str, Any] = {}
    for name in ("first", "later"):
        items, size = next(epochs)
        # Who reads an eighth of the first epoch in time goes on to the end, to come to the second.
        enough = whole / 8 if name == "first" else math.inf
        found[name] = one = epoch(items, size, began, seconds, enough)
        if one["cut"]:
            break  # few can begin anew in the midst of an epoch
        if one["rows"] < 0.95 * whole - 2 * size and side.layout != "webdataset":
            raise ValueError(f"{side.who} gave {one['rows']} of {whole} samples")
        began = time.perf_counter()
    del items, epochs
    gc.collect()
    return {**found, **memory()}
