"""Number of bins of each window of an epoch, counted in parallel and cached."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise

import numpy as np

from streamplug.types import Int64
from streamplug_budget.windows import EpochWindows

_SAMPLES_PER_PROCESS = 1 << 22
"""Samples from which on another process is worth its start."""

_windows: EpochWindows


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
    # Workers of a loader are daemons, which may not start processes.
    if processes < 2 or multiprocessing.current_process().daemon:
        return np.array([windows.count_bins(*task) for task in tasks], np.int64)
    # A process that reads many windows in order computes the order of the epoch only once.
    cuts = [len(tasks) * number // processes for number in range(processes + 1)]
    parts = [tasks[start:stop] for start, stop in pairwise(cuts)]
    with ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _initialize, (make_windows,)
    ) as pool:
        return np.concatenate(list(pool.map(_count, parts)))


def _initialize(make_windows: Callable[[], EpochWindows]) -> None:
    global _windows  # noqa: PLW0603 - made once for all tasks of a process
    _windows = make_windows()


def _count(tasks: Sequence[tuple[int, int]]) -> Int64:
    return np.array([_windows.count_bins(*task) for task in tasks], np.int64)
