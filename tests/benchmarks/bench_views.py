"""Views beside plain data sets: bytes, reading rates, and a selection of 10^9 of 10^10 samples.

    python tests/benchmarks/bench_views.py [added|half|huge ...]

Each prints a line of JSON. Rates are medians of interleaved rounds, relative to a plain data set with the
same rows and columns. ``huge`` takes some minutes and 1.3 GB of disk.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from streamplug_views import View
from streamplug_views.row_set import make_row_set

from streamplug import MDSWriter, StreamingDataset

ROUNDS = 9
ROWS = 200_000
BATCH = 256


def write(out, columns, rows):
    with MDSWriter(out=str(out), columns=columns, size_limit="16mb") as writer:
        for row in rows:
            writer.write(row)


def size_of(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def batches(dataset):
    return sum(len(next(iter(batch.values()))) for batch in dataset.batches(BATCH))


def samples(dataset):
    return sum(1 for _ in dataset)


def random_access(dataset):
    order = np.random.default_rng(0).permutation(dataset.size)[:20_000].tolist()
    for number in order:
        dataset[number]
    return len(order)


def compare(read, one, other):
    """Return the rate of `one` relative to `other`, each per sample."""
    seconds = {0: [], 1: []}
    for _ in range(ROUNDS):
        for number, location in enumerate((one, other)):
            dataset = StreamingDataset(
                remote=str(location), batch_size=BATCH if read is batches else None
            )
            begin = time.perf_counter()
            count = read(dataset)
            seconds[number].append((time.perf_counter() - begin) / count)
    return statistics.median(seconds[1]) / statistics.median(seconds[0])


def rates(one, other):
    return {
        read.__name__: round(compare(read, one, other), 3)
        for read in (batches, samples, random_access)
    }


def bench_added(root):
    """A column of 1 % of the bytes: bytes written, and rates beside one set with all columns."""
    data = np.random.default_rng(0).integers(0, 256, (ROWS, 400), np.uint8)
    columns = {"id": "int64", "data": "bytes"}
    write(root / "base", columns, ({"id": n, "data": data[n].tobytes()} for n in range(ROWS)))
    write(root / "label", {"label": "int32"}, ({"label": n % 1000} for n in range(ROWS)))
    both = ({"id": n, "data": data[n].tobytes(), "label": n % 1000} for n in range(ROWS))
    write(root / "both", {**columns, "label": "int32"}, both)
    View.of(root / "base").add(root / "label").commit(root / "view")
    whole = size_of(root / "base")
    written = size_of(root / "label") + size_of(root / "view")
    mixed = np.random.default_rng(1).permutation(ROWS).tolist()
    write(
        root / "mixed",
        {"id": "int64", "label": "int32"},
        ({"id": n, "label": n % 1000} for n in mixed),
    )
    View.of(root / "base").add(root / "mixed", on="id").commit(root / "by-key")
    return {
        "base_bytes": whole,
        "column_bytes": ROWS * 4,
        "written_share": round(written / whole, 4),
        "view_share": round(size_of(root / "view") / whole, 6),
        "view_by_key_share": round(size_of(root / "by-key") / whole, 4),
        "aligned": rates(root / "view", root / "both"),
        "by_key": rates(root / "by-key", root / "both"),
    }


def bench_half(root):
    """Half of the samples, chosen at random, beside a plain set of these samples."""
    result = {}
    for kind, length in (("small", 16), ("bytes", 10_000)):
        count = ROWS if kind == "small" else ROWS // 10
        data = np.random.default_rng(0).integers(0, 256, length * count, np.uint8).tobytes()
        rows = [{"id": n, "data": data[length * n : length * (n + 1)]} for n in range(count)]
        columns = {"id": "int64", "data": "bytes"}
        write(root / kind, columns, rows)
        view = View.of(root / kind).sample(0.5)
        view.commit(root / f"{kind}-view")
        kept = [row["id"] for row in StreamingDataset(remote=str(root / f"{kind}-view"))]
        write(root / f"{kind}-plain", columns, (rows[n] for n in kept))
        result[kind] = rates(root / f"{kind}-view", root / f"{kind}-plain")
    return result


SHARDS = 100_000
SHARD_ROWS = 100_000

FIRST_BATCH = """
import json, resource, sys, time
from streamplug import StreamingDataset
import streamplug_views.view_format, streamplug.dataset, numpy
def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize()
before, begin = resident(), time.perf_counter()
dataset = StreamingDataset(remote=sys.argv[1], batch_size=256, shuffle=True, shuffle_algo=sys.argv[2])
opened, after = time.perf_counter() - begin, resident()
begin = time.perf_counter()
batch = next(dataset.batches())
first = time.perf_counter() - begin
print(json.dumps({
    "samples": dataset.size, "open_s": round(opened, 2), "resident_mb": round((after - before) / 1e6, 1),
    "first_batch_s": round(first, 3), "resident_after_mb": round((resident() - before) / 1e6, 1),
}))
"""


def bench_huge(root):
    """10^9 of 10^10 samples, evenly spread: one shard of 10^5 samples stands 10^5 times in the index."""
    rows = ({"n": n} for n in range(SHARD_ROWS))
    write(root / "base", {"n": "int32"}, rows)
    index = json.loads((root / "base" / "index.json").read_text())
    [entry] = index["shards"]
    for number in range(1, SHARDS):
        (root / "base" / f"shard.{number:06}.mds").hardlink_to(
            root / "base" / "shard.00000.mds"
        ) if number < 40_000 else None
    names = [
        "shard.00000.mds" if not 0 < number < 40_000 else f"shard.{number:06}.mds"
        for number in range(SHARDS)
    ]
    index["shards"] = [
        {**entry, "raw_data": {**entry["raw_data"], "basename": name}} for name in names
    ]
    (root / "base" / "index.json").write_text(json.dumps(index))
    total, block = SHARDS * SHARD_ROWS, 1 << 22
    generator = np.random.default_rng(0)

    def chosen():
        for first in range(0, total, block):
            count = min(block, total - first)
            yield np.flatnonzero(generator.integers(0, 10, count, np.uint8) == 0) + first

    begin = time.perf_counter()
    selection = make_row_set(chosen(), root / "rows")
    made = time.perf_counter() - begin
    begin = time.perf_counter()
    View.of(root / "base").select(selection).commit(root / "view")
    result = {
        "samples": len(selection),
        "bytes_per_sample": round(size_of(root / "view") / len(selection), 4),
        "build_s": round(made, 1),
        "commit_s": round(time.perf_counter() - begin, 1),
    }
    for algorithm in ("window", "global"):
        command = [sys.executable, "-c", FIRST_BATCH, str(root / "view"), algorithm]
        for _ in range(2):  # the second time, the file is in the page cache
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        result[algorithm] = json.loads(shown)
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    return result


BENCHMARKS = {"added": bench_added, "half": bench_half, "huge": bench_huge}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"benchmark": name, **BENCHMARKS[name](Path(folder))}), flush=True)
