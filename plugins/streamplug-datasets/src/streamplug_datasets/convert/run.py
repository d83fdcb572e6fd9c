"""Runs a conversion: split by split, part by part, then counts what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamplug import write_parts
from streamplug.errors import DataError
from streamplug.plugin import open_storage
from streamplug_datasets.convert.failure_report import count_failures

INDEX = "index.json"


@dataclass(frozen=True)
class Split:
    """What becomes one data set, in a folder of its name.

    Attributes:
        name: Such as ``"train"``.
        columns: Encoding of each column by its name.
        make: Yields the samples of a part; a function of a module.
        parts: What `make` is called with, plain JSON values.
        samples: How many samples the real one has; None if nobody knows, or it need not be whole.
        failures: Folder of the reports of failed samples, see `streamplug_datasets.convert.failure_report`.
    """

    name: str
    columns: Mapping[str, str]
    make: Callable[[Any], Iterable[Mapping[str, Any]]]
    parts: Sequence[Any]
    samples: int | None = None
    failures: str | None = None


@dataclass(frozen=True)
class Settings:
    """How to write, the same for all data sets.

    Attributes:
        out: A path or URL, below which each split has a folder.
        compression: As for `streamplug.Writer`.
        hashes: As for `streamplug.Writer`.
        size_limit: As for `streamplug.Writer`.
        processes: As for `streamplug.write_parts`.
        exist_ok: Whether to replace another data set that is there.
        report: Called with split, parts written, and parts of all.
    """

    out: str
    compression: str | None = None
    hashes: tuple[str, ...] = ()
    size_limit: float | str | None = 1 << 26
    processes: int | None = None
    exist_ok: bool = False
    report: Callable[[str, int, int], None] = lambda *_: None


@dataclass(frozen=True)
class SplitSummary:
    """What a split has become.

    Attributes:
        split: Its name.
        out: Where it is.
        samples: How many samples it has.
        shards: How many shards.
        raw_bytes: Their bytes before compression.
        failed: How many samples are not there, by the kind of failure.
    """

    split: str
    out: str
    samples: int
    shards: int
    raw_bytes: int
    failed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Maker:
    """Function of a split, known by its module: parts say the rest, and how to fetch may differ.

    With the identity, a repeated run keeps the splits that are finished.
    """

    make: Callable[[Any], Iterable[Mapping[str, Any]]]
    identity: str

    def __call__(self, part: Any) -> Iterable[Mapping[str, Any]]:
        return self.make(part)


def convert(splits: Sequence[Split], settings: Settings) -> list[SplitSummary]:
    """Write the splits. A run that was killed goes on where it stood.

    Raises:
        StreamplugError: If something is missing or damaged, or the number of samples is not the real one.
    """
    return [_convert(split, settings) for split in splits]


def _convert(split: Split, settings: Settings) -> SplitSummary:
    out = f"{settings.out.rstrip('/')}/{split.name}" if split.name else settings.out
    write_parts(
        _Maker(split.make, getattr(split.make, "func", split.make).__module__),
        split.parts,
        columns=split.columns,
        out=out,
        processes=settings.processes,
        exist_ok=settings.exist_ok,
        on_progress=lambda done, count: settings.report(split.name, done, count),
        compression=settings.compression,
        hashes=settings.hashes,
        size_limit=settings.size_limit,
    )
    storage = open_storage(out)
    shards = json.loads(storage.read(INDEX))["shards"]
    samples = sum(shard["samples"] for shard in shards)
    if split.samples not in (None, samples):
        storage.delete(INDEX)  # so that nobody takes it for the whole
        raise DataError(
            f"{out}: {samples:,} samples, where {split.name or 'the set'} has {split.samples:,}; if a part "
            "of it is what you want, run again with --allow-partial, which keeps what is written"
        )
    raw_bytes = sum(shard["raw_data"]["bytes"] for shard in shards)
    failed = count_failures(split.failures) if split.failures else {}
    return SplitSummary(split.name, out, samples, len(shards), raw_bytes, failed)


def cut(items: Sequence[Any], size: int, **common: Any) -> list[dict[str, Any]]:
    """Return parts of so many items each, under ``"items"``, with what they have in common."""
    return [{**common, "items": items[at : at + size]} for at in range(0, len(items), size)]


def shuffled(items: Sequence[Any], seed: int) -> list[Any]:
    """Return items in the order of ``numpy.random.default_rng(seed).permutation``."""
    return [items[at] for at in np.random.default_rng(seed).permutation(len(items)).tolist()]
