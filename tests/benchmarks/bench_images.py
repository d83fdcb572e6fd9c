"""What decoding images costs: the decoder alone, streamplug with it, and streamplug with Pillow.

Makes JPEG files that look about like photographs, as data sets of one size each, and reads them into
arrays of 224 x 224 pixels, in one process, the ways in turn, and states the CPU time of each image.
With more threads, also how many cores were busy. Run it as ``python tests/benchmarks/bench_images.py``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import simplejpeg
from photographs import files_of
from PIL import Image
from streamplug_image import ImageArrays

from streamplug import MDSWriter, StreamingDataset

SIZE = (224, 224)
BATCH = 64
SOURCES = {"224x224": (224, 224), "500x375": (500, 375)}
QUALITIES = (75, 95)

Way = Callable[[], Iterator[np.ndarray]]


# -- ways -------------------------------------------------------------------------------


def decoded(file: bytes, out: np.ndarray) -> None:
    """The decoder and, for images of another size, the resizing, with nothing around them."""
    try:
        pixels = simplejpeg.decode_jpeg(file, min_height=SIZE[0], min_width=SIZE[1])
        if pixels.shape[:2] == SIZE:
            out[...] = pixels
            return
    except ValueError as error:
        sys.exit(str(error))
    picture = Image.fromarray(pixels).resize(SIZE[::-1], Image.Resampling.BILINEAR)
    out[...] = np.asarray(picture)


def decoded_in_place(file: bytes, out: np.ndarray) -> None:
    simplejpeg.decode_jpeg(file, buffer=out)


def alone(files: list[bytes], threads: int, *, resized: bool) -> Way:
    """The decoder on the same bytes in memory, into an array for each batch."""
    work = decoded if resized else decoded_in_place
    pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def batches() -> Iterator[np.ndarray]:
        for start in range(0, len(files), BATCH):
            part = files[start : start + BATCH]
            batch = np.empty((len(part), *SIZE, 3), np.uint8)
            if pool is None:
                for file, out in zip(part, batch):
                    work(file, out)
            else:
                list(pool.map(work, part, batch))
            yield batch

    return batches


def ours(folder: Path, threads: int) -> Way:
    decoders = {"image": ImageArrays(size=SIZE, num_threads=threads)}
    dataset = StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True, decoders=decoders)
    return lambda: (batch["image"] for batch in dataset.batches())  # type: ignore[misc]


def ours_with_pillow(folder: Path) -> Way:
    dataset = StreamingDataset(local=str(folder), batch_size=BATCH, shuffle=True)

    def array(picture: Image.Image) -> np.ndarray:
        picture.draft("RGB", SIZE)
        if picture.size != SIZE:
            picture = picture.resize(SIZE, Image.Resampling.BILINEAR)
        return np.asarray(picture)

    def batches() -> Iterator[np.ndarray]:
        for batch in dataset.batches():
            yield np.stack([array(picture) for picture in batch["image"]])

    return batches


# -- measuring --------------------------------------------------------------------------


def measure(ways: dict[str, Way], images: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return microseconds of CPU time for each image, and how many cores were busy."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        for name, way in ways.items():
            cpu, wall, count = time.process_time(), time.perf_counter(), 0
            for batch in way():
                count += len(batch)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if count < images:
                sys.exit(f"{name} gave {count} of {images} images")
            if number:  # the first warms up
                found[name].append((cpu / count * 1e6, cpu / wall))
    return {
        name: {
            "us": round(statistics.median(cost for cost, _ in each), 1),
            "busy": round(statistics.median(busy for _, busy in each), 2),
            # Of each round, as what else the machine does comes and goes.
            "of alone": round(
                statistics.median(
                    base / cost for (base, _), (cost, _) in zip(found[base_of(name)], each)
                ),
                3,
            ),
        }
        for name, each in found.items()
    }


def base_of(name: str) -> str:
    return "alone, 2 threads" if name.endswith("2 threads") else "alone, 1 thread"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2048, help="of each kind")
    parser.add_argument("--sizes", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="streamplug-bench-") as root:
        for name in arguments.sizes:
            size = SOURCES[name]
            for quality in QUALITIES:
                files = files_of(size, quality, arguments.images)
                folder = Path(root) / f"{name}-{quality}"
                with MDSWriter(out=folder, columns={"image": "jpeg"}, size_limit=1 << 22) as out:
                    out.write_batch({"image": files})
                resized = size != SIZE[::-1]
                ways = {
                    "alone, 1 thread": alone(files, 1, resized=resized),
                    "streamplug, 1 thread": ours(folder, 1),
                    "alone, 2 threads": alone(files, 2, resized=resized),
                    "streamplug, 2 threads": ours(folder, 2),
                    "streamplug with Pillow, 1 thread": ours_with_pillow(folder),
                }
                case = f"{name}, quality {quality}"
                figures[case] = measure(ways, len(files), arguments.rounds)
                print(case)
                for way, found in figures[case].items():
                    print(f"  {way:34}" + "".join(f"  {k} {v:8}" for k, v in found.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
