"""Choice of a loader's workers, for ``num_workers="auto"``: none, threads or processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug.adapters.torch import StreamingDataset

MAX_WORKERS = 16
"""Threads of one process share its interpreter lock, and workers the storage."""

_OF_WORKERS = ("persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context")


def choose_workers(
    dataset: StreamingDataset, *, has_functions: bool, seed_torch: bool
) -> tuple[int, int]:
    """Return the numbers of worker processes and of threads; one of them at least is 0.

    Args:
        dataset: The data set.
        has_functions: Whether there is a `transform`, `batch_transform` or `collate_fn`.
        seed_torch: As for the loader.
    """
    count = min(_own_cores(dataset.session.placement.rank().ranks_per_node), MAX_WORKERS)
    if count < 2:
        return 0, 0
    changes_samples = dataset.one_by_one or dataset.may_read_ahead
    if changes_samples or seed_torch:  # which threads do not support
        return count, 0
    if dataset.session.streams.releases_gil:
        return 0, count
    return (count if has_functions else 0), 0


def with_workers(arguments: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return arguments of a loader with that many workers; those of workers are left out without any."""
    left_out = () if workers else _OF_WORKERS
    kept = {name: value for name, value in arguments.items() if name not in left_out}
    return {**kept, "num_workers": workers}


def _own_cores(ranks: int) -> int:
    """Return the cores of this process; if it may use all of the machine, other ranks have their share."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return usable if usable < cores else cores // ranks
