"""What reading and writing samples costs in each shard format, beside the library that the format is from.

In one process, all sides of a format in turn, and states the CPU time of a sample, the median of some rounds.
Run it as ``python tests/benchmarks/bench_formats.py``; a library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from archive_sides import ARCHIVES
from folder_sides import FOLDER
from format_sides import BATCH, FormatSides, Rows, Side
from parquet_sides import PARQUET
from text_sides import TEXTS

READS = ("samples", "batches", "access")
WHATS = (*READS, "write", "lists", "columns", "tables")

FORMATS = {**TEXTS, **ARCHIVES, "parquet": PARQUET, "folder": FOLDER}


def measure(format_: FormatSides, rows: Rows, rounds: int, root: Path) -> dict[str, Any]:
    """Return, by what is done and who does it, microseconds of CPU time for a sample."""
    data = root / "data"
    format_.write(data, rows)
    passes = {}
    for number, side in enumerate(format_.sides):
        if find_spec(side.needs) is not None:
            folder = root / str(number)
            if side.what in READS:  # a copy: some libraries take a folder for themselves
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
        what: figures(what, costs) for what in WHATS if any(side.what == what for side in costs)
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
