"""Peak memory checks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path


def takes_less(limit: int, act: Callable[[], object]) -> bool:
    """Return whether the peak of Python's allocations in a call is below `limit` bytes.

    A call above the limit is repeated once: the first may import modules and fill caches.
    """
    return _traced(act) < limit or _traced(act) < limit


def takes_less_of_the_system(limit: int, act: Callable[[], object]) -> bool:
    """As `takes_less`, for all memory of the process where the system reports it, including C libraries."""
    return _any_kind(act) < limit or _any_kind(act) < limit


def _traced(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _any_kind(act: Callable[[], object]) -> int:
    before = _resident("VmRSS") if _reset_peak() else None
    peak = _traced(act)
    return peak if before is None else max(peak, _resident("VmHWM") - before)


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) << 10
