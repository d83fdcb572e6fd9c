"""Writing, as bench_read.py measures it: samples per second until the data set is complete."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from read_data import KINDS, ROWS, SHARD_BYTES, blocks, rows
from read_round import memory, processor

KINDS_WRITTEN = ("jpeg", "tokens", "small")
DISTINCT = 4_000
"""Samples that are made before anything is measured, to be written again and again."""


class Writing(NamedTuple):
    """One way to write: as in read_sides.py, but for what writes so many samples."""

    who: str
    write: Callable[[Path, str, int], Callable[[], None]]
    needs: tuple[str, ...] = ()


def _one_by_one(writer: Any, kind: str, samples: int) -> Callable[[], None]:
    source = list(rows(kind, min(samples, DISTINCT)))

    def write() -> None:
        with writer as out:
            for row in islice(cycle(source), samples):
                out.write(row)

    return write


def ours(folder: Path, kind: str, samples: int) -> Callable[[], None]:
    from streamplug import MDSWriter

    writer = MDSWriter(columns=KINDS[kind][1], out=folder, size_limit=SHARD_BYTES)
    return _one_by_one(writer, kind, samples)


def ours_by_batches(folder: Path, kind: str, samples: int) -> Callable[[], None]:
    from streamplug import MDSWriter

    writer = MDSWriter(columns=KINDS[kind][1], out=folder, size_limit=SHARD_BYTES)
    source = list(blocks(kind, min(samples, DISTINCT)))

    def write() -> None:
        with writer as out:
            for columns in islice(cycle(source), -(-samples // ROWS)):
                out.write_batch(columns)

    return write


def mosaic(folder: Path, kind: str, samples: int) -> Callable[[], None]:
    from streaming import MDSWriter

    writer = MDSWriter(columns=KINDS[kind][1], out=str(folder), size_limit=SHARD_BYTES)
    return _one_by_one(writer, kind, samples)


WRITERS = [
    Writing("streamplug, write", ours, needs=("streamplug",)),
    Writing("streamplug, write_batch", ours_by_batches, needs=("streamplug",)),
    Writing("mosaicml-streaming, write", mosaic, needs=("streaming",)),
]


def measure(side: Writing, folder: Path, kind: str, samples: int) -> dict[str, Any]:
    """Write a data set; return the same as of an epoch."""
    shutil.rmtree(folder, ignore_errors=True)
    write = side.write(folder, kind, samples)
    began, busy = time.perf_counter(), processor()
    write()
    seconds, used = time.perf_counter() - began, processor() - busy
    shutil.rmtree(folder)
    one = {"rows": samples, "seconds": seconds, "processor": used / samples, "cut": False}
    return {"later": one, **memory()}
