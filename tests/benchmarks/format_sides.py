"""What the sides of bench_formats.py have in common: samples, and how streamplug reads them."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BATCH = 256
COLUMNS = {"id": "int", "ratio": "float", "text": "str"}
SIZE_LIMIT = 1 << 20

Rows = list[dict[str, Any]]
Pass = Callable[[], int]


class Side(NamedTuple):
    """One way to read or write a format.

    Attributes:
        what: ``"samples"``, ``"batches"``, ``"access"``; or to write single samples, ``"write"``, or many at
            once as ``"lists"`` of them, ``"columns"`` or ``"tables"``.
        who: The library and how it is used.
        make: Takes a folder, which has the data set unless it is to be written, and the samples; returns
            what goes over all of them once, and says how many they were.
        needs: A package without which there is no such side.
    """

    what: str
    who: str
    make: Callable[[Path, Rows], Pass]
    needs: str = "streamplug"


def rows_of(count: int) -> Rows:
    """Return samples: a number, a float, and some words."""
    draw = random.Random(1)
    letters = string.ascii_lowercase + "      "
    return [
        {
            "id": number,
            "ratio": draw.random(),
            "text": "".join(draw.choices(letters, k=draw.randrange(60, 180))),
        }
        for number in range(count)
    ]


class FormatSides(NamedTuple):
    """What is measured of a format.

    Attributes:
        write: Writes the data set that all sides read.
        sides: They; the first of each kind (`Side.what`) that is not ours is what ours are compared to.
        rows: Makes the samples, or fewer where they are large.
        needs: A package without which there is nothing to write it.
    """

    write: Callable[[Path, Rows], Any]
    sides: tuple[Side, ...]
    rows: Callable[[int], Rows] = rows_of
    needs: str = "streamplug"


def counted(items: Any) -> int:
    """Return how many items there are."""
    return sum(1 for _ in items)


def at_random(dataset: Any, rows: Rows) -> Pass:
    ids = random.Random(2).choices(range(len(rows)), k=min(len(rows), 5000))
    return lambda: len([dataset[each] for each in ids])


def opened(folder: Path) -> Any:
    from streamplug import StreamingDataset

    return StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True)


def our_samples(folder: Path, rows: Rows) -> Pass:
    dataset = opened(folder)
    return lambda: counted(dataset)


def our_batches(folder: Path, rows: Rows) -> Pass:
    dataset = opened(folder)
    return lambda: sum(len(batch["id"]) for batch in dataset.batches())


def our_access(folder: Path, rows: Rows) -> Pass:
    return at_random(opened(folder), rows)


READ = (
    Side("samples", "streamplug", our_samples),
    Side("batches", "streamplug", our_batches),
    Side("access", "streamplug", our_access),
)


def one_by_one(writer: Callable[[Path], Any]) -> Callable[[Path, Rows], Pass]:
    def make(folder: Path, rows: Rows) -> Pass:
        def write() -> int:
            with writer(folder) as out:
                for row in rows:
                    out.write(row)
            return len(rows)

        return write

    return make


def at_once(writer: Callable[[Path], Any]) -> Callable[[Path, Rows], Pass]:
    def make(folder: Path, rows: Rows) -> Pass:
        def write() -> int:
            with writer(folder) as out:
                for start in range(0, len(rows), 1024):
                    part = rows[start : start + 1024]
                    out.write_batch({name: [row[name] for row in part] for name in COLUMNS})
            return len(rows)

        return write

    return make
