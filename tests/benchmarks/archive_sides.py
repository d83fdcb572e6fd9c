"""Sides of bench_formats.py: archives beside webdataset, chunks beside litdata; small samples and large."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from format_sides import BATCH, FormatSides, Pass, Rows, Side, at_random, counted, rows_of

SHARD = 64 << 20
LARGE = 100_000
_FEWER = 20


def large_rows(count: int) -> Rows:
    """Return samples of 100 kB, one for twenty of the others."""
    draw = random.Random(1)
    return [{"id": n, "data": draw.randbytes(LARGE)} for n in range(max(count // _FEWER, BATCH))]


def ours(folder: Path, kind: str) -> Any:
    from streamplug import StreamingDataset

    return StreamingDataset(remote=str(folder), format=kind, batch_size=BATCH, shuffle=True)


def our_samples(kind: str, folder: Path, rows: Rows) -> Pass:
    dataset = ours(folder, kind)
    return lambda: counted(dataset)


def our_batches(kind: str, folder: Path, rows: Rows) -> Pass:
    dataset = ours(folder, kind)
    return lambda: sum(len(next(iter(batch.values()))) for batch in dataset.batches())


def our_access(kind: str, folder: Path, rows: Rows) -> Pass:
    return at_random(ours(folder, kind), rows)


def reading(kind: str) -> tuple[Side, ...]:
    return (
        Side("samples", "streamplug", partial(our_samples, kind)),
        Side("batches", "streamplug", partial(our_batches, kind)),
        Side("access", "streamplug", partial(our_access, kind)),
    )


# -- tar archives ----------------------------------------------------------------------------------


def as_files(row: dict[str, Any]) -> dict[str, Any]:
    """Return a sample as the files that it is in an archive."""
    found = {"__key__": f"{row['id']:08d}", "cls": row["id"]}
    if "data" in row:
        return {**found, "bin": row["data"]}
    return {**found, "txt": row["text"]}


def our_archives(folder: Path) -> Any:
    from streamplug_webdataset import WebDatasetWriter

    return WebDatasetWriter(str(folder), maxcount=1 << 20, maxsize=SHARD, exist_ok=True)


def their_archives(folder: Path) -> Any:
    import webdataset

    folder.mkdir(exist_ok=True)
    pattern = str(folder / "shard.%05d.tar")
    return webdataset.ShardWriter(pattern, maxcount=1 << 20, maxsize=SHARD, verbose=0)


def archived(writer: Callable[[Path], Any], folder: Path, rows: Rows) -> Pass:
    samples = list(map(as_files, rows))

    def write() -> int:
        with writer(folder) as out:
            for sample in samples:
                out.write(sample)
        return len(samples)

    return write


def webdataset_opened(folder: Path) -> Any:
    import webdataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        urls = sorted(map(str, folder.glob("*.tar")))
        return webdataset.WebDataset(urls, shardshuffle=False).decode()


def webdataset_samples(folder: Path, rows: Rows) -> Pass:
    dataset = webdataset_opened(folder)
    return lambda: counted(dataset)


def webdataset_batches(folder: Path, rows: Rows) -> Pass:
    dataset = webdataset_opened(folder).batched(BATCH)
    return lambda: sum(len(batch["__key__"]) for batch in dataset)


ARCHIVE_SIDES = (
    *reading("webdataset"),
    Side("write", "streamplug", partial(archived, our_archives)),
    Side("samples", "webdataset", webdataset_samples, "webdataset"),
    Side("batches", "webdataset, batched", webdataset_batches, "webdataset"),
    Side("write", "webdataset", partial(archived, their_archives), "webdataset"),
)


# -- chunks --------------------------------------------------------------------------------------


def as_rows(row: dict[str, Any]) -> dict[str, Any]:
    """Return a sample as it is, which litdata writes as a row of Arrow."""
    return row


def as_leaves(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a sample that litdata writes as an item of leaves."""
    return tuple(row.values())


def chunked(made: Callable[[dict[str, Any]], Any], folder: Path, rows: Rows) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_bytes=SHARD)
    for number, row in enumerate(rows):
        writer[number] = made(row)
    writer.done()
    writer.merge(1)


def litdata_opened(folder: Path) -> Any:
    import litdata

    return litdata.StreamingDataset(str(folder), shuffle=True)


def litdata_samples(folder: Path, rows: Rows) -> Pass:
    dataset = litdata_opened(folder)
    return lambda: counted(dataset)


def litdata_batches(folder: Path, rows: Rows) -> Pass:
    import litdata

    # Lists of samples: torch would make a number of each byte of a value.
    dataset = litdata_opened(folder)
    loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0, collate_fn=list)
    return lambda: sum(map(len, loader))


def litdata_access(folder: Path, rows: Rows) -> Pass:
    return at_random(litdata_opened(folder), rows)


CHUNK_SIDES = (
    *reading("litdata"),
    Side("samples", "litdata", litdata_samples, "litdata"),
    Side("batches", "litdata, StreamingDataLoader", litdata_batches, "litdata"),
    Side("access", "litdata", litdata_access, "litdata"),
)


def tars(rows: Callable[[int], Rows]) -> FormatSides:
    write = partial(archived, our_archives)
    return FormatSides(lambda f, r: write(f, r)(), ARCHIVE_SIDES, rows, "streamplug_webdataset")


def chunks(made: Callable[[dict[str, Any]], Any], rows: Callable[[int], Rows]) -> FormatSides:
    return FormatSides(partial(chunked, made), CHUNK_SIDES, rows, "litdata")


ARCHIVES = {
    "tar": tars(rows_of),
    "tar, 100 kB": tars(large_rows),
    "litdata, rows": chunks(as_rows, rows_of),
    "litdata, items": chunks(as_leaves, rows_of),
    "litdata, 100 kB": chunks(as_leaves, large_rows),
}
