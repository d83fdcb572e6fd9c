"""Views beside plain data sets: bytes, reading rates, and a selection of 10^9 of 10^10 samples.

    python tests/benchmarks/bench_views.py [added|half|few|huge ...]

Each prints a line of JSON. Rates are those of shuffled epochs, the best of interleaved rounds, relative to
a plain data set. ``huge`` takes some minutes and 1.3 GB of disk.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from streamplug_testing.http import serving
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
    """Return the rate of `one` relative to `other`, each per sample, after a first epoch of each."""
    batch = BATCH if read is batches else None
    datasets = [
        StreamingDataset(remote=str(place), batch_size=batch, shuffle=True)
        for place in (one, other)
    ]
    seconds = [[], []]
    for _ in range(ROUNDS + 1):
        for dataset, times in zip(datasets, seconds):
            begin = time.perf_counter()
            count = read(dataset)
            times.append((time.perf_counter() - begin) / count)
    return min(seconds[1][1:]) / min(seconds[0][1:])  # the collector slows some rounds to half


def rates(one, other):
    return {
        read.__name__: round(compare(read, one, other), 3)
        for read in (batches, samples, random_access)
    }


def bench_added(root):
    """A column of 1 % of the bytes: bytes written, and rates beside one set with all columns."""
    count, length = ROWS // 10, 10_000
    data = np.random.default_rng(0).integers(0, 256, length * count, np.uint8).tobytes()
    rows = [{"id": n, "data": data[length * n : length * (n + 1)]} for n in range(count)]
    texts = [f"{n:096}" for n in range(count)]
    columns = {"id": "int64", "data": "bytes"}
    write(root / "base", columns, rows)
    write(root / "text", {"text": "str"}, ({"text": text} for text in texts))
    both = ({**row, "text": text} for row, text in zip(rows, texts))
    write(root / "both", {**columns, "text": "str"}, both)
    View.of(root / "base").add(root / "text").commit(root / "view")
    mixed = np.random.default_rng(1).permutation(count).tolist()
    write(
        root / "mixed",
        {"id": "int64", "text": "str"},
        ({"id": n, "text": texts[n]} for n in mixed),
    )
    View.of(root / "base").add(root / "mixed", on="id").commit(root / "by-key")
    whole = size_of(root / "base")
    return {
        "column_share": round(size_of(root / "text") / whole, 4),
        "written_share": round((size_of(root / "text") + size_of(root / "view")) / whole, 4),
        "view_by_key_share": round(size_of(root / "by-key") / whole, 4),
        "aligned": rates(root / "view", root / "both"),
        "by_key": rates(root / "by-key", root / "both"),
    }


def bench_half(root):
    """Half of the samples, chosen at random, beside all of them; rates are per sample that is read."""
    result = {}
    for kind, length in (("small", 16), ("bytes", 10_000)):
        count = ROWS if kind == "small" else ROWS // 10
        data = np.random.default_rng(0).integers(0, 256, length * count, np.uint8).tobytes()
        rows = ({"id": n, "data": data[length * n : length * (n + 1)]} for n in range(count))
        write(root / kind, {"id": "int64", "data": "bytes"}, rows)
        View.of(root / kind).sample(0.5).commit(root / f"{kind}-view")
        result[kind] = rates(root / f"{kind}-view", root / kind)
    return result


def bench_few(root):
    """One per cent of the samples, evenly spread, from a server: bytes by each kind of access.

    ``mixed`` has a half of one shard in ten too, so that it is best to read some shards as a whole.
    """
    count, length = 20_000, 10_000
    data = np.random.default_rng(0).integers(0, 256, length * count, np.uint8).tobytes()
    rows = ({"id": n, "data": data[length * n : length * (n + 1)]} for n in range(count))
    write(root / "base", {"id": "int64", "data": "bytes"}, rows)
    starts = np.cumsum([0, *StreamingDataset(remote=str(root / "base")).samples_per_shard])
    spread = np.arange(0, count, 100)
    dense = np.arange(starts[3], starts[4])
    selections = {"spread": spread, "mixed": np.union1d(spread, dense)}
    result = {}
    for name, selected in selections.items():
        View.of(root / "base").select(selected).commit(root / name)
        sent = {}
        for access in ("shard", "range", "auto"):
            with serving(root) as server, tempfile.TemporaryDirectory() as cache:
                dataset = StreamingDataset(
                    remote=f"{server.url}/{name}", local=cache, access=access, batch_size=10
                )
                found = {int(n) for batch in dataset.batches() for n in batch["id"]}
                if found != set(selected.tolist()):
                    raise SystemExit(f"{name}, {access}: other samples")
                sent[access] = server.bytes_sent
        least = min(sent["shard"], sent["range"])
        result[name] = {**sent, "auto_of_least": round(sent["auto"] / least, 3)}
    return result


SHARDS = 100_000
SHARD_ROWS = 100_000

FIRST_BATCH = """
import json, resource, sys, time
from streamplug import StreamingDataset
import streamplug_views.view_source, streamplug.dataset, numpy
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
    index["shards"] = [entry] * SHARDS
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


BENCHMARKS = {"added": bench_added, "half": bench_half, "few": bench_few, "huge": bench_huge}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"benchmark": name, **BENCHMARKS[name](Path(folder))}), flush=True)
