"""What threads, worker processes and one process cost, and which of them ``num_workers="auto"`` takes.

    python tests/benchmarks/bench_workers.py [--data crops images tokens rows] [--latency 20] [--json FILE]

With ``crops``, JPEG files of 500 x 375 pixels that look about like photographs are read by a loader whose
transform cuts a random box, resizes it to 224 x 224 pixels and flips it. Without a transform are ``images``,
which are such files that a decoder makes arrays of 224 x 224 pixels of, ``tokens``, rows of 2048 uint16, and
``rows`` of two numbers and a text. They are on the disk or, with ``--latency``, on a server that is so many
milliseconds away, with an empty cache in each round.

Each way is a process of its own, bound to two cores; in each round it is each one's turn. Reported are
medians of rounds: samples per second from the first batch on and, of each round, in relation to the worker
processes and to the fastest way; milliseconds from the start of the loop to its first batch; and the memory
at the end of the loop, in MB, of all processes of a way: what is resident in each of them, added up, and
that with shared pages counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from servers import distant, files

CORES, SIZE, SOURCE = 2, (224, 224), (500, 375)
PROCESSES = f"{CORES} processes"
WAYS: dict[str, dict[str, Any]] = {
    "one process": {},
    f"{CORES} threads": {"num_threads": CORES},
    PROCESSES: {"num_workers": CORES},
    "auto": {"num_workers": "auto"},
}
BATCHES = {"crops": 32, "images": 32, "tokens": 64, "rows": 256}
"""Samples of a batch of each kind of data."""


def crop(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
    from PIL import Image

    image = sample["image"]
    high, wide = (int(side * rng.uniform(0.5, 1)) for side in (image.height, image.width))
    left, top = rng.integers(image.width - wide + 1), rng.integers(image.height - high + 1)
    image = image.convert("RGB").crop((left, top, left + wide, top + high))
    pixels = np.array(image.resize(SIZE, Image.Resampling.BILINEAR))
    return {"image": pixels[:, ::-1].copy() if rng.random() < 0.5 else pixels}


# -- in the process of a way -----------------------------------------------------------------


def memory() -> tuple[float, float]:
    """Return the resident memory of this process and its children in MB, and that with shared pages once."""
    sums = [0, 0]
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for pid in ("self", *children):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes = {
            name: int(size.split()[0]) for name, size in (line.split(":", 1) for line in lines[1:])
        }
        sums = [sums[0] + sizes["Rss"], sums[1] + sizes["Pss"]]
    return sums[0] / 1e3, sums[1] / 1e3


def serve(way: str, kind: str, place: str) -> None:
    """Measure a way each time that a line comes, until no more comes."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-CORES:])
    from streamplug import StreamingDataLoader, StreamingDataset

    transform = crop if kind == "crops" else None
    caches = tempfile.TemporaryDirectory(prefix="streamplug-bench-")
    options: dict[str, Any] = {"batch_size": BATCHES[kind], "shuffle": True}
    if kind == "images":
        from streamplug_image import ImageArrays

        options["decoders"] = {"image": ImageArrays(size=SIZE)}
    print("ready", flush=True)
    loader = None
    for number, _ in enumerate(sys.stdin):
        if "://" in place:
            options |= {"remote": place, "local": f"{caches.name}/{number}"}
        else:
            options["local"] = place
        if loader is None or "://" in place:
            loader = StreamingDataLoader(
                StreamingDataset(**options), transform=transform, **WAYS[way]
            )
        began, batches, count, used = time.perf_counter(), iter(loader), 0, (0.0, 0.0)
        next(batches)
        first, steps = time.perf_counter(), len(loader)
        for step, batch in enumerate(batches, 2):
            count += len(next(iter(batch.values())))
            if step == steps - CORES:  # workers have not ended
                used = memory()
        seconds = time.perf_counter() - first
        found = {
            "rate": count / seconds,
            "first": 1e3 * (first - began),
            "rss": used[0],
            "pss": used[1],
        }
        print(json.dumps(found), flush=True)
    caches.cleanup()


# -- in the process that asks ---------------------------------------------------------------


def write(kind: str, folder: Path, count: int) -> None:
    from photographs import files_of

    from streamplug import MDSWriter

    rng = np.random.default_rng(0)
    if kind in {"crops", "images"}:
        columns, values = {"image": "jpeg"}, {"image": files_of(SOURCE, 90, count)}
    elif kind == "tokens":
        columns = {"tokens": "ndarray:uint16:2048"}
        values = {"tokens": list(rng.integers(0, 50_000, (32 * count, 2048)).astype(np.uint16))}
    else:
        columns = {"a": "int", "b": "float32", "text": "str"}
        rows = range(256 * count)
        values = {"a": rows, "b": rng.random(len(rows)), "text": [f"text {n}" for n in rows]}
    with MDSWriter(out=folder, columns=columns, size_limit=1 << 24, exist_ok=True) as out:
        out.write_batch(values)


def measure(kind: str, place: str, rounds: int) -> dict[str, dict[str, float]]:
    processes = {}
    for way in WAYS:
        command = [sys.executable, __file__, "--serve", way, kind, place]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes[way] = process
        process.stdout.readline()
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way, process in processes.items():
            process.stdin.write("\n")
            process.stdin.flush()
            figures = json.loads(process.stdout.readline())
            if number:  # the first warms up
                found[way].append(figures)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    base = found[PROCESSES]
    best = [max(each[n]["rate"] for each in found.values()) for n in range(rounds)]
    for each in found.values():
        for figures, of_processes, fastest in zip(each, base, best):
            figures["of processes"] = figures["rate"] / of_processes["rate"]
            figures["of fastest"] = figures["rate"] / fastest
    return {
        way: {name: round(statistics.median(one[name] for one in each), 3) for name in each[0]}
        for way, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=BATCHES, default=["crops"])
    parser.add_argument("--images", type=int, default=1024, help="samples, in the kinds of images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency", type=float, help="milliseconds to a server; none on the disk")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    figures = {}
    for kind in arguments.data:
        with ExitStack() as stack:
            root = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="streamplug-bench-"))
            )
            write(kind, root / "set", arguments.images)
            place = str(root / "set")
            if arguments.latency is not None:
                _, port, _ = stack.enter_context(files(root, 1 << 30))
                port = stack.enter_context(distant(port, arguments.latency / 1e3))
                place = f"http://127.0.0.1:{port}/set"
            figures[kind] = measure(kind, place, arguments.rounds)
        print(kind)
        for way, found in figures[kind].items():
            print(f"  {way:12}" + "".join(f"  {name} {value:11}" for name, value in found.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
