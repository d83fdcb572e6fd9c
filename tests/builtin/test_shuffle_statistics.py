"""How random the orders are: statistics of them, beside those of a permutation drawn uniformly.

A statistic is a number that is close to standard normal for a uniform permutation. Seeds are fixed, so a
test gives the same result for ever. Had they been drawn, each test would fail a sound shuffle with a
probability of at most `FALSE_ALARM`, divided over its statistics (Bonferroni). Weak ciphers show that the
tests can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import gcd, sqrt
from statistics import NormalDist
from unittest import mock

import numpy as np
import pytest

from streamplug.builtin.shuffles import bijection, window
from streamplug.builtin.shuffles.bijection import Bijection
from streamplug.builtin.shuffles.window import generator
from streamplug.plugin import make

FALSE_ALARM = 1e-4
POWERS = (4**6, 4**7, 4**8)
SIZES = (1000, 10_007, 50_000, 2**13 - 1, 2**13, 2**13 + 1, 2**15 - 1, 2**15, 2**15 + 1)
SIZES += tuple(power + more for power in POWERS for more in (-1, 0, 1))

Shuffle = Callable[[int, int, int], np.ndarray]
"""From a size, a seed and an epoch to the id at each position."""
Scores = Iterator[tuple[str, float]]


def network(size: int, seed: int, epoch: int) -> np.ndarray:
    order = make("shuffle", "global").order(
        np.array([0, size]), canonical_nodes=1, seed=seed, epoch=epoch, block_size=1
    )
    return order.take(0, 0, size)


def uniform(size: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(size)


def congruence(size: int, seed: int, epoch: int) -> np.ndarray:
    factor = int(size * 0.618) + seed
    while gcd(factor, size) > 1:
        factor += 1
    return (factor * np.arange(size) + epoch * 12345) % size


# -- statistics ---------------------------------------------------------------------


def lags_of(size: int) -> list[int]:
    return [3, *(1 << k for k in range(size.bit_length()) if 1 << k < size / 2)]


def chi_square(found: np.ndarray, expected: np.ndarray | float, freedom: int) -> float:
    """Score a sum of squares with so many degrees of freedom (Wilson and Hilferty, 1931)."""
    ratio = float(((found - expected) ** 2 / expected).sum()) / freedom
    return (ratio ** (1 / 3) - 1 + 2 / (9 * freedom)) / sqrt(2 / (9 * freedom))


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Score the correlation of two orders, of which one is uniform given the other."""
    size = len(one)
    middle = (size - 1) / 2
    r = float(((one - middle) * (other - middle)).sum()) / (size * (size**2 - 1) / 12)
    return r * sqrt(size - 1)


def table(rows: np.ndarray, columns: np.ndarray, buckets: int) -> float:
    """Score the counts of pairs of buckets, each of which holds its share of either side."""
    counts = np.bincount(rows * buckets + columns, minlength=buckets**2).reshape(buckets, -1)
    expected = np.outer(counts.sum(1), counts.sum(0)) / len(rows)
    return chi_square(counts, expected, (buckets - 1) ** 2)


def buckets_of(ids: np.ndarray, buckets: int) -> dict[str, np.ndarray]:
    return {"high": ids * buckets // len(ids), "low": ids % buckets}


def neighbours(ids: np.ndarray) -> Scores:
    """Score how ids at a distance relate: their correlation, which is first, and how far they are."""
    size = len(ids)
    for lag in lags_of(size):
        later = np.roll(ids, -lag)
        yield f"correlation at lag {lag}", correlation(ids, later) + 1 / sqrt(size - 1)
        chains = [(size - 1 - first) // lag + 1 for first in range(lag)]
        ascents = int((ids[lag:] > ids[:-lag]).sum()) - (size - lag) / 2
        yield f"order at lag {lag}", ascents / sqrt(sum(n + 1 for n in chains if n > 1) / 12)
        if lag <= 4 or lag * lag == 1 << (size - 1).bit_length():
            counts = np.bincount((later - ids) % size * 32 // size, minlength=32)
            yield f"distance at lag {lag}", chi_square(counts, size / 32, 31)


def displacement(ids: np.ndarray) -> Scores:
    """Score how far samples travel, beside the distance of two uniform numbers."""
    size = len(ids)
    moved = np.abs(ids - np.arange(size)) / size
    yield "mean displacement", (float(moved.mean()) - 1 / 3) / sqrt(2 / 45 / size)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        below = float((moved <= 1 - sqrt(1 - share)).mean()) - share
        yield f"displacement at {share}", below / sqrt(share * (1 - share) / size)
    yield "fixed points", (int((moved == 0).sum()) - 1) / 3.0  # Poisson's tail is longer


def uniformity(ids: np.ndarray) -> Scores:
    """Score where ids lie, by their high and their low digits."""
    for count in (8, 16) if len(ids) < 5000 else (16, 31, 32):
        places = buckets_of(np.arange(len(ids)), count)
        found = buckets_of(ids, count)
        for row, column in product(places, found):
            yield f"{count} {row} x {count} {column}", table(places[row], found[column], count)


def differentials(ids: np.ndarray) -> Scores:
    """Score how often two positions that share a half differ as their ids do: a mark of few rounds."""
    half = (len(ids).bit_length() - 1) // 2
    if len(ids) != 1 << 2 * half:
        return
    places = np.arange(len(ids))
    mask = (1 << half) - 1
    halves = {"high": (lambda x: x >> half, lambda x: x & mask)}
    halves["low"] = halves["high"][::-1]
    expected = (len(ids) * mask / 2) * (1 << half) / (len(ids) - 1)
    for (name, (differ, share)), (which, (part, _)) in product(halves.items(), halves.items()):
        alike = np.bincount(share(places) << half | (differ(places) ^ part(ids)))
        pairs = int((alike * (alike - 1) // 2).sum())
        yield f"{name} and {which} halves differ alike", (pairs - expected) / sqrt(expected)


def independence(one: np.ndarray, other: np.ndarray, which: str) -> Scores:
    """Score two orders beside each other."""
    buckets = 8 if len(one) < 5000 else 32
    yield f"{which}: correlation", correlation(one, other)
    rows, columns = (buckets_of(ids, buckets) for ids in (one, other))
    for kind in rows:
        yield f"{which}: {kind} x {kind}", table(rows[kind], columns[kind], buckets)
    yield f"{which}: same", (int((one == other).sum()) - 1) / 3.0


def battery(shuffle: Shuffle, size: int, seed: int) -> Scores:
    first, second = (shuffle(size, seed, epoch) for epoch in (0, 1))
    for ids in (first, second):
        for statistic in (neighbours, displacement, uniformity, differentials):
            yield from statistic(ids)
    yield from independence(first, second, "next epoch")
    yield from independence(first, shuffle(size, seed + 1, 0), "next seed")
    yield from independence(second, shuffle(size, seed + 1, 0), "next seed, last epoch")


def striking(scores: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the scores that chance does not explain, alone or of all with their name together."""
    named: dict[str, list[float]] = {}
    for name, score in scores:
        named.setdefault(name, []).append(score)
    scores = scores + [(f"all {name}", sum(z) / sqrt(len(z))) for name, z in named.items()]
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / len(scores) / 2)
    return [(name, score) for name, score in scores if not abs(score) < limit]


def results(shuffle: Shuffle, sizes: tuple[int, ...], seeds: range) -> list[tuple[str, float]]:
    return [
        (f"{size}: {name}", score)
        for size in sizes
        for seed in seeds
        for name, score in battery(shuffle, size, seed)
    ]


# -- global ---------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [network, uniform])
def test_an_order_of_global_is_as_a_uniform_permutation(shuffle):
    assert striking(results(shuffle, SIZES, range(100, 104))) == []


@pytest.mark.parametrize("size", POWERS)
@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_network_of_few_rounds_would_be_found_out(size, rounds):
    with mock.patch.object(bijection, "_ROUNDS", rounds):
        assert striking(results(network, (size,), range(100, 102)))


@pytest.mark.parametrize("size", [1000, 2**15, 50_000])
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_network_of_very_few_rounds_would_be_found_out_at_other_sizes(size, rounds):
    with mock.patch.object(bijection, "_ROUNDS", rounds):
        assert striking(results(network, (size,), range(100, 102)))


@pytest.mark.parametrize("size", SIZES)
def test_a_linear_congruence_would_be_found_out(size):
    assert striking(results(congruence, (size,), range(100, 101)))


def test_epochs_that_depend_on_each_other_would_be_found_out():
    def rotated(size, seed, epoch):
        return (uniform(size, seed, 0) + epoch * 1000) % size

    found = striking(results(rotated, (10_007,), range(100, 102)))
    assert {name.split(": ")[1] for name, _ in found} == {"next epoch"}


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 9, 16, 31, 33])
def test_over_many_seeds_every_id_comes_everywhere(size):
    orders = np.array([Bijection(size, seed, 0)(np.arange(size)) for seed in range(2000)])
    counts = np.array([np.bincount(column, minlength=size) for column in orders.T])
    score = chi_square(counts, len(orders) / size, (size - 1) ** 2)
    assert score < NormalDist().inv_cdf(1 - FALSE_ALARM)


# -- window ---------------------------------------------------------------------------

BLOCK = 1000
"""Samples of a block; a canonical node has 200 of them, and only whole ones are looked at."""


def window_places(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each id of a data set of one shard, and its number."""
    order = make("shuffle", "window").order(
        np.array([0, 200 * BLOCK]), canonical_nodes=1, seed=seed, epoch=0, block_size=BLOCK
    )
    ids = order.take(0, 0, 200 * BLOCK)
    inner = slice(2 * BLOCK, 198 * BLOCK)
    return np.argsort(ids)[inner], np.arange(len(ids))[inner]


def window_scores(seed: int) -> Scores:
    """Score how samples travel: from anywhere in a block to anywhere in it and half a block around."""
    places, ids = window_places(seed)
    travelled = places - (ids // BLOCK * BLOCK - BLOCK // 2)  # in [0, 2 * BLOCK)
    rows, columns = ids % BLOCK // 100, travelled // 100
    counts = np.bincount(rows * 20 + columns, minlength=200).reshape(10, 20)
    yield "blocks", chi_square(counts, len(ids) / 200, 10 * 19)
    moved = np.abs(places - ids) / BLOCK
    yield "mean displacement", (float(moved.mean()) - 13 / 24) / (0.4 / sqrt(len(ids)))
    apart = travelled / BLOCK - 1
    for lag in (1, 2, 3, 4, 8, 16, 32, 64, 128, 256):
        r = float((apart[lag:] * apart[:-lag]).mean()) * 3  # of two uniform numbers in [-1, 1)
        yield f"correlation at lag {lag}", r * sqrt(len(ids))
        ascents = float((places[lag:] > places[:-lag])[ids[lag:] % BLOCK >= lag].mean()) - 0.5
        yield f"order at lag {lag}", ascents * sqrt(12 * len(ids))


def least_crossed(seed: int) -> float:
    """Return how many samples, in blocks, cross the place in a block that the fewest cross."""
    places, ids = window_places(seed)
    low, high = np.minimum(places, ids), np.maximum(places, ids)
    crossing = np.cumsum(np.bincount(low, minlength=high.max() + 1) - np.bincount(high))
    whole = crossing[3 * BLOCK : 197 * BLOCK].reshape(-1, BLOCK)
    return float(whole.mean(0).min()) / BLOCK / 2


@pytest.mark.parametrize("seed", range(3))
def test_a_window_order_mixes_its_blocks_evenly_and_leaves_no_edge(seed):
    assert striking(list(window_scores(seed))) == []
    assert least_crossed(seed) > 0.24  # 1/4 where blocks meet, 9/32 between


def test_a_single_pass_would_be_found_out():
    def first_only(seed, epoch, use, canonical_node, block):
        unmixed = mock.Mock()  # its shuffle() does nothing
        return (
            unmixed if use == window.SECOND else generator(seed, epoch, use, canonical_node, block)
        )

    with mock.patch.object(window, "generator", first_only):
        assert least_crossed(0) == 0
        assert "blocks" in dict(striking(list(window_scores(0))))


def test_a_pass_that_leaves_neighbours_together_would_be_found_out():
    def turned(seed, epoch, use, canonical_node, block):
        it = generator(seed, epoch, use, canonical_node, block)
        if use not in (window.FIRST, window.SECOND):
            return it
        by = int(it.integers(BLOCK))
        return mock.Mock(shuffle=lambda ids: np.copyto(ids, np.roll(ids, by)))

    with mock.patch.object(window, "generator", turned):
        assert "correlation at lag 1" in dict(striking(list(window_scores(0))))
