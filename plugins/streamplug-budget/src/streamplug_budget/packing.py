"""Packing of samples into bins of limited cost, in closed form and without a loop over samples.

Samples are taken in tiers of similar cost, the largest first. Each tier is laid end to end over the
bins, which are filled up to a common level: a sample goes to the bin in which it starts. With b bins,
the level after a tier is at most S / b, where S is the cost of all samples so far, and a bin exceeds it
by less than e, the largest cost of the tier. So no bin exceeds the limit if b >= S / (limit - e) for
every tier, and the sums of the tiers give the number of bins. Samples of more than half of the limit get
a bin each.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heapify, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from streamplug.types import Int64

_TIERS_PER_OCTAVE = 2
_MAX_TABLE = 1 << 20
"""Largest limit up to which the tiers of all costs are looked up in a table."""
_MAX_EXCESS = 0.005
"""Share of bins above the least possible number from which on fewer bins are tried."""


@lru_cache(maxsize=8)
def _tier_bounds(limit: int) -> Int64:
    """Return the largest cost of each tier, descending from the limit; the last one is 0."""
    half, bounds = limit // 2, [limit]
    step = 0
    while (bound := int(half * 2 ** (-step / _TIERS_PER_OCTAVE))) > 0:
        if bound < bounds[-1]:
            bounds.append(bound)
        step += 1
    return np.array([*bounds, 0], np.int64)


@lru_cache(maxsize=8)
def _tier_table(limit: int) -> NDArray[np.uint8]:
    return _search_tiers(np.arange(limit + 1), limit)


def _search_tiers(costs: Int64, limit: int) -> NDArray[np.uint8]:
    bounds = _tier_bounds(limit)
    return (len(bounds) - 1 - np.searchsorted(bounds[::-1], costs)).astype(np.uint8)


def _tiers(costs: Int64, limit: int) -> NDArray[np.uint8]:
    """Return the tier of each cost, from 0 for those above half of the limit."""
    if limit <= _MAX_TABLE:
        return _tier_table(limit)[costs]
    return _search_tiers(costs, limit)


def count_bins(costs: Int64, limit: int) -> int:
    """Return the number of bins into which `pack` puts samples.

    Args:
        costs: Cost of each sample, 1 to `limit`, shape ``[n]``, n at least 1.
        limit: Largest cost of a bin.
    """
    tiers = _tiers(costs, limit)
    bins, is_certain = _bound_bins(tiers, costs, limit)
    return bins if is_certain else _search(tiers, costs, limit)[1]


def pack(costs: Int64, limit: int) -> tuple[Int64, int]:
    """Return the bin of each sample, shape ``[n]``, and the number of bins; see `count_bins`."""
    tiers = _tiers(costs, limit)
    bins, is_certain = _bound_bins(tiers, costs, limit)
    return (_fill(tiers, costs, bins), bins) if is_certain else _search(tiers, costs, limit)


def _bound_bins(tiers: NDArray[np.uint8], costs: Int64, limit: int) -> tuple[int, bool]:
    """Return a sufficient number of bins, and whether it is close to the least one and leaves none empty."""
    bounds = _tier_bounds(limit)
    counts = np.bincount(tiers, minlength=len(bounds))
    sums = np.cumsum(np.bincount(tiers, costs, len(bounds))).astype(np.int64)
    total, present = int(sums[-1]), np.flatnonzero(counts[1:]) + 1
    needed = -(-sums[present] // (limit - bounds[present]))
    bins = max(int(counts[0]), int(needed.max(initial=1)))
    # A bin that is empty at the end was so when the level was below the largest cost of each tier: all bins
    # without a sample above a quarter of the limit are then less than half full.
    large = int(counts[bounds > limit // 4].sum())
    none_empty = 2 * total >= (bins + large) * limit
    return bins, none_empty and bins <= -(-total // limit) * (1 + _MAX_EXCESS) + 1


def _search(tiers: NDArray[np.uint8], costs: Int64, limit: int) -> tuple[Int64, int]:
    """Return the packing with the fewest bins among some numbers of bins."""
    most = _bound_bins(tiers, costs, limit)[0]
    least, best = max(-(-int(costs.sum()) // limit), 1), _fill(tiers, costs, most)
    while least < most:
        middle = (least + most) // 2
        filled = _fill(tiers, costs, middle)
        if int(np.bincount(filled, costs).max()) <= limit:
            most, best = middle, filled
        else:
            least = middle + 1
    used, numbers = np.unique(best, return_inverse=True)
    return numbers, len(used)


def _fill(tiers: NDArray[np.uint8], costs: Int64, bins: int) -> Int64:
    """Return the bin of each sample; bins exceed the limit if there are too few of them."""
    order = np.argsort(tiers, kind="stable")
    ordered = costs[order]
    ends = np.cumsum(np.bincount(tiers)).tolist()
    filled, loads = np.empty_like(order), np.zeros(bins, np.int64)
    for tier, (start, end) in enumerate(zip([0, *ends], ends)):
        if start == end:
            continue
        part = ordered[start:end]
        if tier or end > bins:
            starts = np.cumsum(part) - part
            room = np.maximum(_level(loads, int(part.sum())) - loads, 0)
            chosen = np.searchsorted(np.cumsum(room), starts, side="right")
        else:
            chosen = np.arange(end)
        filled[order[start:end]] = chosen
        loads += np.bincount(chosen, part, bins).astype(np.int64)
    return filled


def _level(loads: Int64, amount: int) -> int:
    """Return the level up to which bins must be filled to take an amount."""
    ordered = np.sort(loads)
    counts = np.arange(1, len(ordered) + 1)
    levels = -(-(np.cumsum(ordered) + amount) // counts)
    # The lowest bins are filled up to the next one, until the amount is used up.
    enough = np.flatnonzero(levels[:-1] <= ordered[1:])
    return int(levels[enough[0]]) if len(enough) else int(levels[-1])


def group_padded(costs: Int64, limit: int, max_samples: int | None) -> tuple[Int64, int]:
    """Return the bin of each sample, and the number of bins, where bins are padded to their longest sample.

    Bins hold samples of similar cost; a bin costs its number of samples times its largest cost.

    Args:
        costs: Cost of each sample, 1 to `limit`, shape ``[n]``, n at least 1.
        limit: Largest cost of a bin.
        max_samples: Largest number of samples in a bin; None for any number.
    """
    order = np.argsort(-costs, kind="stable")
    counts = limit // costs[order]
    if max_samples is not None:
        counts = np.minimum(counts, max_samples)
    first, bounds, following = 0, [0], counts.tolist()
    while first < len(order):
        first = min(first + following[first], len(order))
        bounds.append(first)
    chosen = np.empty_like(order)
    chosen[order] = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return chosen, len(bounds) - 1


def split_bins(chosen: Int64, bins: int, wanted: int) -> Int64:
    """Return the bin of each sample after halving those of most samples until there are `wanted`.

    Args:
        chosen: Bin of each sample, shape ``[n]``.
        bins: Number of bins.
        wanted: Number of bins to be made, `bins` to n.
    """
    if bins == wanted:
        return chosen
    counts = np.bincount(chosen)
    starts = np.cumsum(counts) - counts
    parts = [(-count, start) for count, start in zip(counts.tolist(), starts.tolist())]
    heapify(parts)
    for _ in range(wanted - bins):
        count, start = -parts[0][0], parts[0][1]
        heapreplace(parts, (-(count - count // 2), start))
        heappush(parts, (-(count // 2), start + count - count // 2))
    bounds = sorted(start for _, start in parts)
    split = np.empty_like(chosen)
    split[np.argsort(chosen, kind="stable")] = np.repeat(
        np.arange(wanted), np.diff([*bounds, len(chosen)])
    )
    return split
