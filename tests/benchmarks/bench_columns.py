"""Some columns of Parquet files by range requests, beside whole files: bytes and seconds of an epoch.

    python tests/benchmarks/bench_columns.py [--rounds 5] [--rows 400000] [--chosen 3]

A table of 50 columns of random numbers is in four files, with row groups of 50,000 rows. A server gives them
at 50 MB/s for each connection. Ways to read take turns in one process, each with an empty cache; seconds are
medians, from opening the data set on. A shuffled epoch is read in batches.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import servers

from streamplug import StreamingDataset
from streamplug.interfaces import Callback, RangesRead, ShardDownloaded

COLUMNS, FILES, GROUP, BATCH, PACE = 50, 4, 50_000, 256, 50_000_000


def write(folder: Path, rows: int) -> None:
    draw = np.random.default_rng(0)
    for number in range(FILES):
        names = [f"c{n:02}" for n in range(COLUMNS)]
        table = pa.table({name: draw.integers(0, 1 << 60, rows // FILES) for name in names})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=GROUP)


class Transferred(Callback):
    """Counts the bytes of files and of ranges."""

    def __init__(self) -> None:
        self.bytes = 0

    def on_event(self, event: Any, _world: Any) -> None:
        if isinstance(event, (RangesRead, ShardDownloaded)):
            self.bytes += event.bytes


def epoch(url: str, access: str, chosen: list[str], rows: int) -> tuple[float, int]:
    """Return the seconds that an epoch takes, and the bytes that it transfers."""
    cache, counts = tempfile.mkdtemp(), Transferred()
    files = [f"{url}/{number}.parquet" for number in range(FILES)]
    began = time.perf_counter()
    dataset = StreamingDataset(
        remote=files,
        local=None if access == "range" else cache,
        format="parquet",
        access=access,
        columns=chosen,
        shuffle=True,
        batch_size=BATCH,
        callbacks=[counts],
    )
    found = sum(len(batch[chosen[0]]) for batch in dataset.batches())
    seconds = time.perf_counter() - began
    assert found >= rows // FILES * FILES
    shutil.rmtree(cache)
    return seconds, counts.bytes


def measure(rounds: int, rows: int, chosen: int) -> dict[str, tuple[float, int]]:
    """Return median seconds and bytes by access."""
    names = [f"c{n:02}" for n in np.linspace(0, COLUMNS - 1, chosen).round().astype(int)]
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as root:
        write(Path(root), rows)
        with servers.files(Path(root), PACE) as (_, port, paced):
            url = f"http://127.0.0.1:{paced or port}"
            for _ in range(rounds):
                for access in ("shard", "range"):
                    found[access].append(epoch(url, access, names, rows))
    return {
        access: (statistics.median(seconds for seconds, _ in each), each[-1][1])
        for access, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--chosen", type=int, default=3, help="number of columns that are read")
    options = parser.parse_args()
    found = measure(options.rounds, options.rows, options.chosen)
    whole = found["shard"]
    for access, (seconds, size) in found.items():
        shares = f"{seconds / whole[0]:.2f} of the time, {size / whole[1]:.3f} of the bytes"
        print(f"{access:6} {seconds:7.3f} s {size / 1e6:8.1f} MB   {shares}")


if __name__ == "__main__":
    main()
