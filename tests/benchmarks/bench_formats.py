"""What reading and writing samples costs in each shard format, beside the library that the format is from.

In one process, all sides of a format in turn, and states the CPU time of a sample, the median of some rounds.
Run it as ``python tests/benchmarks/bench_formats.py``; a library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import runpy
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from archive_sides import ARCHIVES
from format_sides import (
    BATCH,
    COLUMNS,
    READ,
    SIZE_LIMIT,
    FormatSides,
    Pass,
    Rows,
    Side,
    at_random,
    counted,
)

# -- JSON lines, CSV, TSV, XSV ----------------------------------------------------------------


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


# -- JSON lines and CSV without an index ------------------------------------------------------


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


# -- directories of files ---------------------------------------------------------------------


def write_files(folder: Path, rows: Rows) -> None:
    for row in rows:
        path = folder / f"class-{row['id'] % 10}" / f"{row['id']:06d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(20 * row["text"])


def folder_opened(folder: Path) -> Any:
    from streamplug import StreamingDataset

    return StreamingDataset(
        remote=str(folder), format="folder:classes", batch_size=BATCH, shuffle=True
    )


def folder_samples(folder: Path, rows: Rows) -> Pass:
    dataset = folder_opened(folder)
    return lambda: counted(dataset)


def folder_batches(folder: Path, rows: Rows) -> Pass:
    dataset = folder_opened(folder)
    return lambda: sum(len(batch["data"]) for batch in dataset.batches())


def folder_access(folder: Path, rows: Rows) -> Pass:
    return at_random(folder_opened(folder), rows)


class PlainFolder:
    """What data sets of single files in torch do: a list of paths, and a file for each sample."""

    def __init__(self, folder: Path) -> None:
        names = sorted(path.name for path in folder.iterdir())
        classes = [name for name in names if name[0] != "."]
        self._files = [
            (p, n) for n, c in enumerate(classes) for p in sorted((folder / c).iterdir())
        ]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        path, label = self._files[number]
        with open(path, "rb") as file:  # noqa: PTH123 - as they do
            return file.read(), label


def torch_samples(folder: Path, rows: Rows) -> Pass:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(PlainFolder(folder), batch_size=None, shuffle=True)
    return lambda: counted(loader)


def torch_batches(folder: Path, rows: Rows) -> Pass:
    from torch.utils.data import DataLoader  # noqa: TID251 - as its users do

    loader = DataLoader(PlainFolder(folder), BATCH, shuffle=True)
    return lambda: sum(len(data) for data, _ in loader)


def torch_access(folder: Path, rows: Rows) -> Pass:
    return at_random(PlainFolder(folder), rows)


FOLDER = FormatSides(
    write_files,
    (
        Side("samples", "streamplug", folder_samples),
        Side("batches", "streamplug", folder_batches),
        Side("access", "streamplug", folder_access),
        Side("samples", "files one by one, DataLoader", torch_samples, "torch"),
        Side("batches", "files one by one, DataLoader", torch_batches, "torch"),
        Side("access", "files one by one", torch_access, "torch"),
    ),
)


# -- measuring ----------------------------------------------------------------------------------

FORMATS = {
    "jsonl": text("JSONWriter"),
    "csv": text("CSVWriter"),
    "tsv": text("TSVWriter"),
    "xsv": text("XSVWriter", separator="|"),
    **ARCHIVES,
    "plain jsonl": plain(text("JSONWriter"), "jsonl"),
    "plain csv": plain(text("CSVWriter"), "csv:id=int,ratio=float"),
    "folder": FOLDER,
}


def measure(format_: FormatSides, rows: Rows, rounds: int, root: Path) -> dict[str, Any]:
    """Return, by what is done and who does it, microseconds of CPU time for a sample."""
    data = root / "data"
    format_.write(data, rows)
    passes = {}
    for number, side in enumerate(format_.sides):
        if find_spec(side.needs) is not None:
            folder = root / str(number)
            if side.what != "write":  # a copy: some libraries take a folder for themselves
                shutil.copytree(data, folder)
            passes[side] = side.make(folder, rows)
    costs: dict[Side, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for side, once in passes.items():
            began = time.process_time()
            count = once()
            cost = (time.process_time() - began) / count * 1e6
            if count < min(len(rows), 5000) - BATCH:
                sys.exit(f"{side.who} gave {count} of {len(rows)} samples")
            if number:  # the first warms up
                costs[side].append(cost)
    return {
        what: figures(what, costs)
        for what in ("samples", "batches", "access", "write")
        if any(side.what == what for side in costs)
    }


def figures(what: str, costs: dict[Side, list[float]]) -> dict[str, dict[str, float]]:
    """Return the median of each side, and how often it goes into that of the other library."""
    chosen = [side for side in costs if side.what == what]
    others = [side for side in chosen if not side.who.startswith("streamplug")]
    found = {}
    for side in chosen:
        found[side.who] = {"us": round(statistics.median(costs[side]), 3)}
        for other in islice(others, 1):
            # Of each round, as what else the machine does comes and goes.
            ratios = [theirs / ours for ours, theirs in zip(costs[side], costs[other])]
            found[side.who]["times faster"] = round(statistics.median(ratios), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    found = {}
    for name in arguments.formats:
        if find_spec(FORMATS[name].needs) is None:
            continue
        rows = FORMATS[name].rows(arguments.samples)
        with tempfile.TemporaryDirectory(prefix="streamplug-bench-") as root:
            found[name] = measure(FORMATS[name], rows, arguments.rounds, Path(root))
        print(name)
        for what, sides in found[name].items():
            for who, each in sides.items():
                print(f"  {what:8} {who:34}" + "".join(f"  {k} {v:9}" for k, v in each.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
