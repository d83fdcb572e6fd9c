"""What durable writing costs: the times of data sets that are synced to the disk in different ways, or not.

Run it as ``python tests/benchmarks/bench_durable.py [--out DIRECTORY] [--rounds 7] [--megabytes 2048]`` on
the disk in question. For each compression, kind of sample and size limit, it prints a row of the table in the
documentation: the rate without syncs and, as median ratios to its time, durable writing, a loop that writes
files of about the same sizes and syncs them in four threads, and one sync of the disk at the end.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice
from pathlib import Path

import numpy as np

from streamplug import MDSWriter
from streamplug.plugin_kit.file_commit import sync_file

CASES = [
    # Compression, size limit, samples, share of the bytes
    (None, "1mb", "values", 2),
    (None, "16mb", "values", 1),
    (None, "64mb", "values", 1),
    (None, "256mb", "values", 1),
    (None, "1mb", "tokens", 2),
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


def write_dataset(
    out: Path, samples: list[dict[str, bytes]], total: int, limit: str, kind: str | None, how: str
) -> float:
    """Return the seconds that writing so many bytes takes."""
    number = total // len(samples[0]["b"])
    begin = time.perf_counter()
    with MDSWriter(
        out=out,
        columns={"b": "bytes"},
        size_limit=limit,
        compression=kind,
        durable=how == "durable",
    ) as writer:
        for sample, _ in zip(cycle(samples), range(number)):
            writer.write(sample)
    if how == "one sync":
        os.sync()
    return time.perf_counter() - begin


def write_files(out: Path, samples: list[dict[str, bytes]], sizes: list[int]) -> float:
    """Return the seconds that writing files of about these sizes and syncing each in a thread takes."""
    values = cycle([sample["b"] for sample in samples])
    out.mkdir()
    begin = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        pending = []
        for number, size in enumerate(sizes):
            path = out / str(number)
            with path.open("wb", 1 << 18) as stream:
                stream.writelines(islice(values, size // len(samples[0]["b"])))
            pending.append(pool.submit(sync_file, path))
        for sync in pending:
            sync.result()
    return time.perf_counter() - begin


def empty_files(out: Path) -> None:
    """Free the space and the memory of a data set that was written.

    The names stay until all is measured: ext4 creates files up to three times as slowly where others were
    removed in the last minutes, as it does not use their inodes again so soon.
    """
    for path in out.iterdir():
        os.truncate(path, 0)
    os.sync()


def measure(parent: Path, rounds: int, megabytes: int) -> None:
    folders = (parent / str(number) for number in count())
    print(
        "| Samples | Compression | Shards | Not synced, MB/s | Durable | Files alone, synced "
        "| One sync at the end |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    ways = ("not synced", "durable", "files alone", "one sync")
    for compression, limit, kind, share in CASES:
        samples, total = make_samples(kind), megabytes * 1_000_000 // share
        first = next(folders)
        write_dataset(first, samples, total, limit, compression, "not synced")
        sizes = [path.stat().st_size for path in first.iterdir()]
        empty_files(first)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way in random.sample(ways, len(ways)):
                out = next(folders)
                seconds[way].append(
                    write_files(out, samples, sizes)
                    if way == "files alone"
                    else write_dataset(out, samples, total, limit, compression, way)
                )
                empty_files(out)
        plain = seconds["not synced"]
        rate = total / statistics.median(plain) / 1e6
        ratios = [
            statistics.median(a / b for a, b in zip(seconds[w], plain, strict=True))
            for w in ways[1:]
        ]
        row = (kind, compression or "none", limit, f"{rate:,.0f}", *(f"{r:.2f}" for r in ratios))
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=2048)
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(dir=options.out))
    try:
        measure(parent, options.rounds, options.megabytes)
    finally:
        shutil.rmtree(parent)


if __name__ == "__main__":
    main()
