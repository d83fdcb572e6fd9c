"""Reading from a server, beside what its client can do at best.

    python tests/benchmarks/bench_remote.py [--rounds 3] [--json FILE]

All sides use the same client (that of the built-in storage) and the same local server, which runs in a
process of its own; rounds of all sides are interleaved, and medians are compared.

- shards: samples of whole shards, beside downloading the same files, eight at a time.
- ranges: samples of 100 kB by ranges, beside asking for the same ranges, file by file.
- first batch: with 20 ms before each answer, beside the time of a GET of the index and one of a range.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from streamplug import MDSWriter, StreamingDataset
from streamplug.builtin.storages.http import Http
from streamplug.testing.http import serving

SAMPLE = 100_000
COLUMNS = {"fixed": {"x": f"ndarray:uint8:{SAMPLE}"}, "variable": {"x": "bytes"}}


def serve(root: str, seconds: float, pipe: Any) -> None:
    with serving(Path(root)) as server:
        server.seconds = seconds
        pipe.send(server.url)
        pipe.recv()


def write(root: Path, name: str, samples: int, limit: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, SAMPLE + samples, dtype=np.uint8)
    with MDSWriter(out=root / name, columns=COLUMNS[name], size_limit=limit) as out:
        for n in range(samples):
            row = noise[n : n + SAMPLE]
            out.write({"x": row if name == "fixed" else row.tobytes()})


def get_shards(url: str, root: Path) -> float:
    storage, out = Http(url), Path(tempfile.mkdtemp())
    names = sorted(path.name for path in root.glob("*.mds"))
    began = time.perf_counter()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: storage.download(name, out / name), names))
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    return seconds


def stream_shards(url: str, batch: int) -> float:
    out = tempfile.mkdtemp()
    dataset = StreamingDataset(remote=url, local=out, batch_size=batch, shuffle=True)
    began = time.perf_counter()
    for _ in dataset.batches():
        pass
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    return seconds


def get_ranges(url: str, places: list[tuple[str, int, int]]) -> float:
    """Ask for ranges of each file together, files side by side: the most that the client can do."""
    storage = Http(url)
    began = time.perf_counter()
    with ThreadPoolExecutor(16) as threads:
        for first in range(0, len(places), 256):
            files: dict[str, list[tuple[int, int]]] = {}
            for name, start, stop in places[first : first + 256]:
                files.setdefault(name, []).append((start, stop))
            list(threads.map(lambda item: storage.read_ranges(*item), files.items()))
    return time.perf_counter() - began


def places_of(dataset: StreamingDataset, ids: np.ndarray) -> list[tuple[str, int, int]]:
    """Return the file and bytes of each sample, which a caller that keeps its own table would have."""
    found = []
    for sample in ids.tolist():
        _, shard, name, row = dataset._reader.locate(sample)
        reader = dataset._reader.open(shard).reader
        start, stop = reader._shards._head(reader._info).byte_ranges(np.array([row]))[0].tolist()
        found.append((name, start, stop))
    return found


def read_ranges(url: str, ids: np.ndarray) -> float:
    """Read samples by their ids, heads and all."""
    dataset = StreamingDataset(remote=url, fetch="range")
    began = time.perf_counter()
    for start in range(0, len(ids), 256):
        dataset[ids[start : start + 256]]
    return time.perf_counter() - began


def stream_ranges(url: str, batch: int) -> float:
    dataset = StreamingDataset(remote=url, fetch="range", batch_size=batch, shuffle=True)
    began = time.perf_counter()
    for _ in dataset.batches():
        pass
    return time.perf_counter() - began


def first_batch(url: str, fetch: str) -> float:
    out = tempfile.mkdtemp()
    began = time.perf_counter()
    local = out if fetch == "shard" else None
    dataset = StreamingDataset(remote=url, local=local, fetch=fetch, batch_size=8, shuffle=True)
    batches = dataset.batches()
    next(batches)
    seconds = time.perf_counter() - began
    batches.close()
    shutil.rmtree(out)
    return seconds


def two_requests(url: str) -> float:
    storage = Http(url)
    began = time.perf_counter()
    storage.read("index.json")
    storage.read_range("shard.00000.mds", 4000, 4000 + SAMPLE)
    return time.perf_counter() - began


def measure(samples: int, rounds: int) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp())
    spawn = multiprocessing.get_context("spawn")
    servers = []
    try:
        for name in COLUMNS:
            write(root, name, samples, 1 << 24)
        for seconds in (0.0, 0.02):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(str(root), seconds, theirs), daemon=True)
            process.start()
            servers.append((ours.recv(), ours, process))
        return compare(root, servers[0][0], servers[1][0], samples, rounds)
    finally:
        for _, pipe, process in servers:
            pipe.send(None)
            process.join(10)
        shutil.rmtree(root)


def compare(root: Path, quick: str, slow: str, samples: int, rounds: int) -> dict[str, Any]:
    url = f"{quick}/variable"
    ids = np.random.default_rng(1).permutation(samples)[: samples // 2]
    # In shuffled order, so that few samples are neighbours: one request each.
    places = places_of(StreamingDataset(remote=url, fetch="range"), ids)
    sides = {
        "shards: GET loop": lambda: get_shards(url, root / "variable"),
        "shards: streamed": lambda: stream_shards(url, 32),
        "ranges: GET loop": lambda: get_ranges(url, places),
        "ranges: samples": lambda: read_ranges(url, ids),
        "ranges: epoch": lambda: stream_ranges(url, 32),
        "first: index and range": lambda: two_requests(f"{slow}/variable"),
        "first: by ranges": lambda: first_batch(f"{slow}/variable", "range"),
        "first: by ranges, fixed size": lambda: first_batch(f"{slow}/fixed", "range"),
        "first: by shards": lambda: first_batch(f"{slow}/variable", "shard"),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, side in sides.items():
            seconds = side()
            if turn:  # the first warms up
                times[name].append(seconds)
    median = {name: statistics.median(values) for name, values in times.items()}
    total, part = samples * SAMPLE, len(ids) * SAMPLE
    rates = dict.fromkeys(("shards: GET loop", "shards: streamed", "ranges: epoch"), total)
    rates |= dict.fromkeys(("ranges: GET loop", "ranges: samples"), part)
    return {
        "seconds": median,
        "MB/s": {name: rates[name] / median[name] / 1e6 for name in rates},
        "shards": median["shards: GET loop"] / median["shards: streamed"],
        "ranges": median["ranges: GET loop"] / median["ranges: samples"],
        "first batch by ranges": median["first: by ranges"] / median["first: index and range"],
        "first batch by ranges, fixed size": median["first: by ranges, fixed size"]
        / median["first: index and range"],
        "all": times,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.samples, options.rounds)
    for name, seconds in found["seconds"].items():
        rate = f"{found['MB/s'][name]:8.0f} MB/s" if name in found["MB/s"] else ""
        print(f"{name:32} {seconds:8.3f} s {rate}")
    for name in ("shards", "ranges", "first batch by ranges", "first batch by ranges, fixed size"):
        print(f"{name:40} {found[name]:.2f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
