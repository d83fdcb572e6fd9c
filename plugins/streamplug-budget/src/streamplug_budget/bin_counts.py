"""Number of bins of each window, counted in parallel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, pairwise

import numpy as np

from streamplug.types import Int64
from streamplug_budget.processes import map_processes
from streamplug_budget.windows import EpochWindows

_SAMPLES_PER_PROCESS = 1 << 22
"""Samples from which on another process is worth its start."""


def count_bins_until(windows: EpochWindows, most: int | None) -> Int64:
    """Return the number of bins of each window, sequence by sequence, shape ``[windows]``.

    Args:
        windows: The windows.
        most: Number of bins, one of each sequence in turn, beyond which none are needed, so that windows
            after them may have the number 0; None for all bins.
    """
    totals = windows.window_counts
    counts = [np.zeros(total, np.int64) for total in totals]
    needed = None if most is None else most // len(totals) + 1  # of each sequence
    first, longest = 0, max(totals)
    stop = longest if needed is None else windows.estimate_windows(needed)
    while first < longest:
        # The numbers of last windows depend on all others.
        stop = longest if stop >= min(totals) else stop
        tasks = [
            (sequence, window)
            for sequence, total in enumerate(totals)
            for window in range(min(first, total), min(stop, total))
        ]
        for (sequence, window), count in zip(tasks, _count_tasks(tasks, windows)):
            counts[sequence][window] = count
        if needed is not None and min(of_sequence.sum() for of_sequence in counts) >= needed:
            break
        first, stop = stop, stop + max(stop // 8, 1)
    return np.concatenate(counts)


def _count_tasks(tasks: Sequence[tuple[int, int]], windows: EpochWindows) -> list[int]:
    samples = len(tasks) * windows.window_size
    processes = min(os.cpu_count() or 1, samples // _SAMPLES_PER_PROCESS)
    count = partial(_count, windows)
    if processes < 2:
        return count(tasks)
    # A process that reads many windows in order computes the order of the epoch only once.
    cuts = [len(tasks) * number // processes for number in range(processes + 1)]
    parts = [tasks[start:stop] for start, stop in pairwise(cuts)]
    return list(chain(*map_processes(count, parts)))


def _count(windows: EpochWindows, tasks: Sequence[tuple[int, int]]) -> list[int]:
    return [windows.count_bins(*task) for task in tasks]


def complete_global_batch(windows: EpochWindows, counts: Int64, micro_batches: int) -> list[Int64]:
    """Return the number of bins of each window by sequence, more in the last ones to end a global batch.

    Numbers stay as they are if some windows were not counted. There may be too few samples for a whole global
    batch, since no bin has less than one.
    """
    extra = -int(counts.sum()) % micro_batches if counts.all() else 0
    ends = list(accumulate(windows.window_counts))
    counts = counts.copy()
    # Samples besides one of each bin, in the last window of each sequence that has one.
    spare = sorted(
        (len(windows.positions(sequence, total - 1)) - int(counts[end - 1]), end - 1)
        for sequence, (total, end) in enumerate(zip(windows.window_counts, ends))
        if total
    )
    for number, (samples, last) in enumerate(spare):
        added = min(samples, -(-extra // (len(spare) - number)))
        counts[last] += added
        extra -= added
    return np.split(counts, ends[:-1])
