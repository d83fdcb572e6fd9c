"""Number of bins of each window of an epoch, counted in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from streamplug.types import Int64
from streamplug_budget.processes import map_processes
from streamplug_budget.windows import EpochWindows

_SAMPLES_PER_PROCESS = 1 << 22
"""Samples from which on another process is worth its start."""


def count_all_bins(windows: EpochWindows, make_windows: Callable[[], EpochWindows]) -> Int64:
    """Return the number of bins of all windows, sequence by sequence, shape ``[windows]``.

    Args:
        windows: The windows.
        make_windows: Returns the same windows in another process; it can be pickled.
    """
    tasks = [
        (sequence, window)
        for sequence, count in enumerate(windows.window_counts)
        for window in range(count)
    ]
    processes = min(os.cpu_count() or 1, windows.samples // _SAMPLES_PER_PROCESS)
    if processes < 2:
        return _count(tasks, lambda: windows)
    # A process that reads many windows in order computes the order of the epoch only once.
    cuts = [len(tasks) * number // processes for number in range(processes + 1)]
    parts = [tasks[start:stop] for start, stop in pairwise(cuts)]
    return np.concatenate(map_processes(partial(_count, make_windows=make_windows), parts))


def _count(tasks: Sequence[tuple[int, int]], make_windows: Callable[[], EpochWindows]) -> Int64:
    windows = make_windows()
    return np.array([windows.count_bins(*task) for task in tasks], np.int64)
