"""What reading and writing samples costs in each shard format, beside the library that the format is from.

In one process, all sides of a format in turn, and states the CPU time of a sample, the median of some rounds.
Run it as ``python tests/benchmarks/bench_formats.py``; a library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import runpy
import shutil
import statistics
import string
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
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
        what: ``"write"``, ``"samples"``, ``"batches"`` or ``"access"``.
        who: The library and how it is used.
        make: Takes a folder, which has the data set unless it is to be written, and the samples; returns
            what goes over all of them once, and says how many they were.
        needs: A package without which there is no such side.
    """

    what: str
    who: str
    make: Callable[[Path, Rows], Pass]
    needs: str = "streamplug"


class FormatSides(NamedTuple):
    """What is measured of a format.

    Attributes:
        write: Writes the data set that all sides read.
        sides: They; the first of each kind (`Side.what`) that is not ours is what ours are compared to.
    """

    write: Callable[[Path, Rows], Any]
    sides: tuple[Side, ...]


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


def counted(items: Any) -> int:
    """Return how many items there are."""
    return sum(1 for _ in items)


def at_random(dataset: Any, rows: Rows) -> Pass:
    ids = random.Random(2).choices(range(len(rows)), k=min(len(rows), 5000))
    return lambda: len([dataset[each] for each in ids])


# -- streamplug -----------------------------------------------------------------------------


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


# -- Parquet ------------------------------------------------------------------------------------


def parquet_writer(folder: Path) -> Any:
    from streamplug import Writer

    columns = {"id": "int64", "ratio": "double", "text": "string"}
    return Writer(
        out=folder, columns=columns, format="parquet", size_limit=SIZE_LIMIT, exist_ok=True
    )


def hf() -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets


def hf_opened(folder: Path, *, streaming: bool) -> Any:
    files = sorted(map(str, folder.glob("*.parquet")))
    options = {"streaming": True} if streaming else {"cache_dir": str(folder / "hf")}
    return hf().load_dataset("parquet", data_files=files, split="train", **options)


def hf_samples(folder: Path, rows: Rows) -> Pass:
    dataset = hf_opened(folder, streaming=True).shuffle(buffer_size=1000, seed=1)
    return lambda: counted(dataset)


def hf_batches(folder: Path, rows: Rows) -> Pass:
    dataset = hf_opened(folder, streaming=True).shuffle(buffer_size=1000, seed=1)
    return lambda: sum(len(batch["id"]) for batch in dataset.with_format("numpy").iter(BATCH))


def hf_access(folder: Path, rows: Rows) -> Pass:
    return at_random(hf_opened(folder, streaming=False), rows)


def hf_write(folder: Path, rows: Rows) -> Pass:
    from datasets.arrow_writer import ParquetWriter

    folder.mkdir(exist_ok=True)

    def write() -> int:
        writer = ParquetWriter(path=str(folder / "x.parquet"))
        for row in rows:
            writer.write(row)
        writer.finalize()
        return len(rows)

    return write


def arrow_write(folder: Path, rows: Rows) -> Pass:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)

    def write() -> int:
        pq.write_table(pa.Table.from_pylist(rows), folder / "y.parquet")
        return len(rows)

    return write


def arrow_batches(folder: Path, rows: Rows) -> Pass:
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))

    def read() -> int:
        each = (batch for f in files for batch in pq.ParquetFile(f).iter_batches(BATCH))
        return sum(len(batch.to_pydict()["id"]) for batch in each)

    return read


PARQUET = FormatSides(
    lambda folder, rows: one_by_one(parquet_writer)(folder, rows)(),
    (
        *READ,
        Side("write", "streamplug", one_by_one(parquet_writer)),
        Side("write", "streamplug, write_batch", at_once(parquet_writer)),
        Side("samples", "datasets, streaming", hf_samples, "datasets"),
        Side("batches", "datasets, streaming, numpy", hf_batches, "datasets"),
        Side("batches", "pyarrow, in order, to_pydict", arrow_batches, "pyarrow"),
        Side("access", "datasets, from its cache", hf_access, "datasets"),
        Side("write", "datasets, ParquetWriter", hf_write, "datasets"),
        Side("write", "pyarrow, from_pylist", arrow_write, "pyarrow"),
    ),
)

# -- measuring ----------------------------------------------------------------------------------

FORMATS = {
    "jsonl": text("JSONWriter"),
    "csv": text("CSVWriter"),
    "tsv": text("TSVWriter"),
    "xsv": text("XSVWriter", separator="|"),
    "parquet": PARQUET,
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
    rows, found = rows_of(arguments.samples), {}
    for name in arguments.formats:
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
