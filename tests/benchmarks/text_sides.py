"""What the sides of text of bench_formats.py do."""

from __future__ import annotations

import runpy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from format_sides import (
    BATCH,
    COLUMNS,
    READ,
    SIZE_LIMIT,
    FormatSides,
    Pass,
    Rows,
    Side,
    at_once,
    at_random,
    counted,
    one_by_one,
)


def text_writer(name: str, **marks: str) -> Callable[[Path], Any]:
    def writer(folder: Path) -> Any:
        import streamplug_text

        kind = getattr(streamplug_text, name)
        return kind(out=folder, columns=COLUMNS, size_limit=SIZE_LIMIT, exist_ok=True, **marks)

    return writer


def mosaic_writer(name: str, **marks: str) -> Callable[[Path], Any]:
    def writer(folder: Path) -> Any:
        kind = getattr(mosaic(), name)
        return kind(out=str(folder), columns=COLUMNS, size_limit=SIZE_LIMIT, exist_ok=True, **marks)

    return writer


def mosaic() -> Any:
    if "streaming" not in sys.modules:
        stubs = Path(__file__).parents[1] / "peers" / "stubs.py"
        runpy.run_path(str(stubs))["install"]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import streaming
        # Its writer looks once in a second whether its uploads, which here are none, are done.
        streaming.base.format.base.writer.sleep = lambda seconds: time.sleep(seconds / 1000)
    return sys.modules["streaming"]


def mosaic_opened(folder: Path) -> Any:
    return mosaic().StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True)


def mosaic_samples(folder: Path, rows: Rows) -> Pass:
    dataset = mosaic_opened(folder)
    return lambda: counted(dataset)


def mosaic_batches(folder: Path, rows: Rows) -> Pass:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(mosaic_opened(folder), BATCH)
    return lambda: sum(len(batch["id"]) for batch in loader)


def mosaic_access(folder: Path, rows: Rows) -> Pass:
    return at_random(mosaic().LocalDataset(str(folder)), rows)


def text(name: str, **marks: str) -> FormatSides:
    ours, theirs = text_writer(name, **marks), mosaic_writer(name, **marks)
    sides = (
        *READ,
        Side("write", "streamplug", one_by_one(ours)),
        Side("write", "streamplug, write_batch", at_once(ours)),
        Side("samples", "mosaicml-streaming", mosaic_samples, "streaming"),
        Side("batches", "mosaicml-streaming, DataLoader", mosaic_batches, "streaming"),
        Side("access", "mosaicml-streaming, LocalDataset", mosaic_access, "streaming"),
        Side("write", "mosaicml-streaming", one_by_one(theirs), "streaming"),
    )
    return FormatSides(lambda folder, rows: one_by_one(ours)(folder, rows)(), sides)


def plain_opened(folder: Path, spec: str) -> Any:
    from streamplug import StreamingDataset

    glob = f"{folder}/*.{spec.partition(':')[0].replace('jsonl', 'json')}"
    return StreamingDataset(remote=glob, format=spec, batch_size=BATCH, shuffle=True)


def plain(shards: FormatSides, spec: str) -> FormatSides:
    """Return the same data read without its index, which was looked through before."""

    def samples(folder: Path, rows: Rows) -> Pass:
        dataset = plain_opened(folder, spec)
        return lambda: counted(dataset)

    def batches(folder: Path, rows: Rows) -> Pass:
        dataset = plain_opened(folder, spec)
        return lambda: sum(len(batch["id"]) for batch in dataset.batches())

    def access(folder: Path, rows: Rows) -> Pass:
        return at_random(plain_opened(folder, spec), rows)

    ours = (
        Side("samples", "streamplug", samples),
        Side("batches", "streamplug", batches),
        Side("access", "streamplug", access),
    )
    theirs = (side for side in shards.sides if side.needs == "streaming" and side.what != "write")
    return FormatSides(shards.write, (*ours, *theirs))


TEXTS = {
    "jsonl": text("JSONWriter"),
    "csv": text("CSVWriter"),
    "tsv": text("TSVWriter"),
    "xsv": text("XSVWriter", separator="|"),
    "plain jsonl": plain(text("JSONWriter"), "jsonl"),
    "plain csv": plain(text("CSVWriter"), "csv:id=int,ratio=float"),
}
