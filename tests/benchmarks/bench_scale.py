"""What a very large index costs: to parse, to open, and to take the first batches of an epoch from.

Three measurements on one index of a million shards with 10¹² samples: parsing its index.json; opening the
data set; and the ids of batches in the middle of a shuffled epoch. Sample ids only: there are no shards. Run
it as ``python tests/benchmarks/bench_scale.py``; the figures are printed as a table to the standard error
stream, and as JSON to the standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 1024
BATCHES = 256
AROUND = 16_667
"""Samples of a shard, on average."""

ENTRY = {
    "column_encodings": ["ndarray:uint16:2048", "str"],
    "column_names": ["tokens", "url"],
    "column_sizes": [4096, None],
    "compression": None,
    "format": "mds",
    "hashes": ["xxh64"],
    "size_limit": 1 << 26,
    "version": 2,
}

# -- memory -----------------------------------------------------------------------------


def memory() -> dict[str, int]:
    """Return the bytes that this process has of its own (RssAnon), and of mapped files (RssFile)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) << 10 for name in ("RssAnon", "RssFile")}


class Peak:
    """The most that was used during a block, beyond what was used before.

    Attributes:
        seconds: How long the block took.
        processor: For how long it computed.
        own: Bytes of memory of its own.
        mapped: Bytes of mapped files.
    """

    seconds: float
    processor: float
    own: int = 0
    mapped: int = 0

    def report(self) -> dict[str, float]:
        return {
            "seconds": round(self.seconds, 4),
            "processor_seconds": round(self.processor, 4),
            "own_mb": round(self.own / 1e6, 1),
            "mapped_mb": round(self.mapped / 1e6, 1),
        }


@contextmanager
def measured() -> Iterator[Peak]:
    peak, done, before = Peak(), threading.Event(), memory()

    def look() -> None:
        now = memory()
        peak.own = max(peak.own, now["RssAnon"] - before["RssAnon"])
        peak.mapped = max(peak.mapped, now["RssFile"] - before["RssFile"])

    def watch() -> None:
        while not done.wait(0.005):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin, busy = time.perf_counter(), time.process_time()
    try:
        yield peak
        peak.seconds = time.perf_counter() - begin
        peak.processor = time.process_time() - busy
        look()
    finally:
        done.set()
        watcher.join()


# -- what is measured -------------------------------------------------------------------


def write_index(path: Path, shards: int, samples: int | None = None) -> None:
    """Write an index.json as a writer does: sorted keys, one line."""
    mean = AROUND if samples is None else samples // shards
    with path.open("w") as file:
        for number in range(shards):
            data = {
                "basename": f"shard.{number:05d}.mds",
                "bytes": 67_108_000 + number % 864,
                "hashes": {"xxh64": f"{number * 7919 * 104_729:016x}"},
            }
            own = {"raw_data": data, "samples": mean + number % 331 - 165, "zip_data": None}
            file.write(", " if number else '{"shards": [')
            file.write(json.dumps({**ENTRY, **own}, sort_keys=True))
        file.write('], "version": 2}')


def measure_parse(folder: Path) -> dict[str, Any]:
    from streamplug.index import INDEX_NAME, parse_index

    data = (folder / INDEX_NAME).read_bytes()
    with measured() as peak:
        index = parse_index(data, INDEX_NAME)
    return {"parse": {"shards": len(index), "bytes": len(data), **peak.report()}}


def measure_open(folder: Path) -> dict[str, Any]:
    from streamplug.dataset import StreamingDataset
    from streamplug.types import World

    with measured() as opening:
        dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=BATCH)
    world = World()
    with measured() as first:
        epoch = dataset.session.run.epoch(0, world)
        middle = epoch.steps(world) // 2
        ids, _ = epoch.ids(world, np.array([middle]))
    if len(ids) != BATCH or ids.min() < 0 or ids.max() >= dataset.size:
        sys.exit(f"these are no ids: {ids}")
    blocks = np.arange(middle, middle + BATCHES)
    with measured() as by_four:
        for start in range(0, BATCHES, 4):
            epoch.ids(world, blocks[start : start + 4])
    with measured() as one_by_one:
        for start in range(BATCHES):
            epoch.ids(world, blocks[start : start + 1])
    return {
        "open": {"shards": dataset.num_shards, "samples": dataset.size, **opening.report()},
        "first_batch": {"step": middle, **first.report()},
        "ids": {
            "batch": BATCH,
            "us_per_batch": round(1e6 * one_by_one.seconds / BATCHES, 1),
            "processor_us_per_batch": round(1e6 * one_by_one.processor / BATCHES, 1),
            "us_per_batch_by_four": round(1e6 * by_four.seconds / BATCHES, 1),
            "own_mb": round(max(by_four.own, one_by_one.own) / 1e6, 1),
        },
    }


# -- the command ------------------------------------------------------------------------

PARTS = {"parse": measure_parse, "open": measure_open}


def in_process(part: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="streamplug-bench-", dir=arguments.dir) as name:
        write_index(Path(name, "index.json"), arguments.shards, arguments.samples)
        for part in PARTS:
            found |= in_process(part, Path(name))
    return found


def table(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    for part, figures in found.items():
        values = (f"{name} {value:,}" for name, value in figures.items())
        yield f"{part:12} {'  '.join(values)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=10**6)
    parser.add_argument("--samples", type=int, default=10**12)
    parser.add_argument("--dir", help="where to write; needs about 360 bytes for each shard")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part](arguments.folder)))
        return
    found = measure(arguments)
    print("\n".join(table(found)), file=sys.stderr)
    print(json.dumps({"cores": os.cpu_count(), **found}, indent=2))


if __name__ == "__main__":
    main()
