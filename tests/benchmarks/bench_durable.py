"""What durable writing costs: the times of pairs of data sets, one synced to the disk and one not.

Run it as ``python tests/benchmarks/bench_durable.py [--out DIRECTORY] [--rounds 7] [--megabytes 512]`` on the
disk in question. For each compression, kind of sample and size limit, it prints a row of the table in the
documentation: the rate without syncs, and the median ratio of durable writing to that, and to that with one
sync of everything at the end, which is what the disk itself takes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from itertools import cycle
from pathlib import Path

import numpy as np

from streamplug import MDSWriter

CASES = [
    # Compression, size limit, samples, share of the bytes
    (None, "1mb", "values", 4),
    (None, "16mb", "values", 1),
    (None, "64mb", "values", 1),
    (None, "256mb", "values", 1),
    (None, "1mb", "tokens", 4),
    (None, "64mb", "tokens", 1),
    ("zstd", "1mb", "tokens", 4),
    ("zstd", "16mb", "tokens", 4),
    ("zstd", "64mb", "tokens", 4),
]


def make_samples(kind: str) -> list[dict[str, bytes]]:
    rng = np.random.default_rng(0)
    if kind == "values":  # of 100 kB, ready in memory: nothing but writing
        return [{"b": rng.bytes(100_000)} for _ in range(256)]
    tokens = (np.minimum(rng.zipf(1.3, 2048), 65535).astype("<u2") for _ in range(512))
    return [{"b": row.tobytes()} for row in tokens]


def write(
    out: Path, samples: list[dict[str, bytes]], total: int, limit: str, kind: str | None, how: str
) -> float:
    """Return the seconds that writing so many bytes takes."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    count = total // len(samples[0]["b"])
    begin = time.perf_counter()
    with MDSWriter(
        out=out,
        columns={"b": "bytes"},
        size_limit=limit,
        compression=kind,
        durable=how == "durable",
    ) as writer:
        for sample, _ in zip(cycle(samples), range(count)):
            writer.write(sample)
    if how == "synced":
        os.sync()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=512)
    options = parser.parse_args()
    out = Path(tempfile.mkdtemp(dir=options.out)) / "set"
    print("| Samples | Compression | Shards | Not synced, MB/s | Durable | One sync at the end |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for compression, limit, kind, share in CASES:
        samples, total = make_samples(kind), options.megabytes * 1_000_000 // share
        seconds: dict[str, list[float]] = {"plain": [], "durable": [], "synced": []}
        for _ in range(options.rounds):
            for how in random.sample(list(seconds), 3):
                seconds[how].append(write(out, samples, total, limit, compression, how))
        ratios = [
            statistics.median(a / b for a, b in zip(seconds[how], seconds["plain"], strict=True))
            for how in ("durable", "synced")
        ]
        rate = total / statistics.median(seconds["plain"]) / 1e6
        row = (kind, compression or "none", limit, f"{rate:,.0f}", *(f"{r:.2f}" for r in ratios))
        print(f"| {' | '.join(row)} |", flush=True)
    shutil.rmtree(out.parent)


if __name__ == "__main__":
    main()
