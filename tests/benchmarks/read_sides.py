"""What bench_read.py measures: streamplug, and copies by numpy that no reader can beat.

A side takes the folder of a data set and its number of samples. It yields its epochs: what comes out of
one, and how many samples each such item has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BATCH = 256
ROWS_AT_ONCE = 1024
ACCESSES = 20_000

Epochs = Iterator[tuple[Iterable[Any], int]]


class Side(NamedTuple):
    """One way to read a data set.

    Attributes:
        what: ``"samples"``, ``"batches"``, ``"loader"`` (with two workers), ``"access"`` or ``"limit"``.
        who: The library and how it is used.
        read: Yields epochs.
        layout: The folder that it reads.
        needs: Packages without which there is no such side.
        cores: How many it may use.
        kinds: The data sets that it reads; None for all.
    """

    what: str
    who: str
    read: Callable[[Path, int], Epochs]
    layout: str = "mds"
    needs: tuple[str, ...] = ()
    cores: int = 1
    kinds: tuple[str, ...] | None = None


# -- limits -------------------------------------------------------------------------------


def mapped_shards(data: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Map MDS shards of rows of one size; return their rows as bytes, and where each shard ends."""
    shards = []
    for path in sorted(data.glob("shard.*.mds")):
        mapped = np.memmap(path, np.uint8, mode="r")
        samples, first = mapped[:8].view("<u4").tolist()
        # As bytes: numpy would copy the whole of an array of tokens that begins at an odd place.
        shards.append(mapped[first:].reshape(samples, -1))
    return shards, np.cumsum([len(shard) for shard in shards])


def gathered(shards: list[np.ndarray], ends: np.ndarray, order: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(order), ROWS_AT_ONCE):
        ids = order[start : start + ROWS_AT_ONCE]
        rows = np.empty((len(ids), shards[0].shape[1]), np.uint8)
        # All of a shard in one call, still at random within it.
        shard_of = np.searchsorted(ends, ids, side="right")
        ids = ids[np.argsort(shard_of, kind="stable")]
        bounds = [0, *np.cumsum(np.bincount(shard_of, minlength=len(shards)))]
        for shard, end, (begin, stop) in zip(shards, ends, pairwise(bounds)):
            local = ids[begin:stop] - (end - len(shard))
            np.take(shard, local, axis=0, out=rows[begin:stop], mode="clip")
        yield rows


def numpy_mapped(data: Path, samples: int) -> Epochs:
    shards, ends = mapped_shards(data)
    rng = np.random.default_rng(1)
    while True:
        yield gathered(shards, ends, rng.permutation(samples)), ROWS_AT_ONCE


def numpy_memory(data: Path, samples: int) -> Epochs:
    shards, _ = mapped_shards(data)
    whole = [np.concatenate(shards)]
    rng = np.random.default_rng(1)
    while True:
        yield gathered(whole, np.array([samples]), rng.permutation(samples)), ROWS_AT_ONCE


# -- streamplug -----------------------------------------------------------------------------


def _open(data: Path, batch: int = BATCH) -> Any:
    from streamplug import StreamingDataset

    return StreamingDataset(local=str(data), batch_size=batch, shuffle=True)


def ours_samples(data: Path, samples: int) -> Epochs:
    dataset = _open(data)
    while True:
        yield dataset, 1


def ours_batches(data: Path, samples: int, *, num_threads: int = 0, batch: int = BATCH) -> Epochs:
    dataset = _open(data, batch)
    while True:
        yield dataset.batches(num_threads=num_threads), batch


def ours_loader(
    data: Path, samples: int, *, workers: int, batch: int = BATCH, **options: Any
) -> Epochs:
    """Read with a loader, which takes further options, such as a transform."""
    from streamplug import StreamingDataLoader

    loader = StreamingDataLoader(
        _open(data, batch), num_workers=workers, persistent_workers=workers > 0, **options
    )
    while True:
        yield loader, batch


def ours_torch_loader(data: Path, samples: int, *, workers: int) -> Epochs:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(_open(data), BATCH, num_workers=workers, persistent_workers=True)
    while True:
        yield loader, BATCH


def at_random(dataset: Any, samples: int) -> Epochs:
    """Yield single samples by their numbers, in random order."""
    rng = np.random.default_rng(1)
    while True:
        yield map(dataset.__getitem__, rng.integers(0, samples, ACCESSES).tolist()), 1


def ours_access(data: Path, samples: int) -> Epochs:
    return at_random(_open(data), samples)


def ours_access_many(data: Path, samples: int) -> Epochs:
    dataset = _open(data)
    rng = np.random.default_rng(1)
    while True:
        yield map(dataset.__getitem__, rng.integers(0, samples, (ACCESSES // BATCH, BATCH))), BATCH


_OURS, _TORCH = ("streamplug",), ("streamplug", "torch")
COLLATED = ("jpeg", "tokens", "small", "table")
"""Data sets whose samples a loader makes tensors of: not those of arrays of any length."""


def _sides() -> Iterator[Side]:
    ours = partial(Side, needs=_OURS)
    loader = partial(Side, needs=_TORCH, kinds=COLLATED)
    yield ours("samples", "streamplug, samples", ours_samples)
    yield ours("batches", "streamplug, batches(256)", ours_batches)
    two_threads = partial(ours_batches, num_threads=2)
    yield ours("batches", "streamplug, batches, 2 threads", two_threads, cores=2)
    yield loader("batches", "streamplug, loader", partial(ours_loader, workers=0))
    yield loader("loader", "streamplug, loader", partial(ours_loader, workers=2), cores=2)
    torch_loader = partial(ours_torch_loader, workers=2)
    yield loader("loader", "streamplug, torch's loader", torch_loader, cores=2)
    yield ours("access", "streamplug, dataset[i]", ours_access)
    yield ours("access", "streamplug, dataset[array]", ours_access_many)


OURS = list(_sides())
LIMITS = [
    Side("limit", "numpy, rows in memory", numpy_memory, kinds=("tokens",)),
    Side("limit", "numpy, rows of mapped shards", numpy_mapped, kinds=("tokens",)),
]
