"""What threads, worker processes and one process cost that crop JPEG files with a transform of Pillow.

Makes JPEG files of 500 x 375 pixels that look about like photographs, and reads them with a loader whose
transform cuts a random box, resizes it to 224 x 224 pixels and flips it. Each way is a process of its own,
bound to two cores; in each round it is each one's turn. Reported are medians of rounds: images per second
from the first batch on and, of each round, in relation to the worker processes; milliseconds from the start
of the loop to its first batch; and the memory at the end of the loop, in MB, of all processes of a way: what
is resident in each of them, added up, and that with shared pages counted once. Run it as
``python tests/benchmarks/bench_workers.py``.
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
from pathlib import Path
from typing import Any

CORES, BATCH, SIZE, SOURCE = 2, 32, (224, 224), (500, 375)
WAYS: dict[str, dict[str, Any]] = {
    "one process": {},
    f"{CORES} threads": {"num_threads": CORES},
    f"{CORES} processes": {"num_workers": CORES},
}


def crop(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
    import numpy as np
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


def serve(way: str, folder: str) -> None:
    """Measure a way each time that a line comes, until no more comes."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-CORES:])
    from streamplug import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True)
    loader = StreamingDataLoader(dataset, transform=crop, **WAYS[way])
    print("ready", flush=True)
    for _ in sys.stdin:
        began, batches, count, used = time.perf_counter(), iter(loader), 0, (0.0, 0.0)
        next(batches)
        first, steps = time.perf_counter(), len(loader)
        for step, batch in enumerate(batches, 2):
            count += len(batch["image"])
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


# -- in the process that asks ---------------------------------------------------------------


def measure(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    processes = {}
    for way in WAYS:
        command = [sys.executable, __file__, "--serve", way, "--data", str(folder)]
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
    base = found[f"{CORES} processes"]
    for each in found.values():
        for figures, of_processes in zip(each, base):
            figures["of processes"] = figures["rate"] / of_processes["rate"]
    return {
        way: {name: round(statistics.median(one[name] for one in each), 3) for name in each[0]}
        for way, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.data)
        return
    from bench_images import files_of

    from streamplug import MDSWriter

    with tempfile.TemporaryDirectory(prefix="streamplug-bench-") as root:
        files = files_of(SOURCE, 90, arguments.images)
        with MDSWriter(
            out=root, columns={"image": "jpeg"}, size_limit=1 << 24, exist_ok=True
        ) as out:
            out.write_batch({"image": files})
        figures = measure(Path(root), arguments.rounds)
    for way, found in figures.items():
        print(f"{way:14}" + "".join(f"  {name} {value:9}" for name, value in found.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
