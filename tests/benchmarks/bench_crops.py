"""What random crops cost: decoding alone, streamplug, and Pillow with and without torchvision.

Makes JPEG files that look about like photographs, and cuts random boxes out of them, resized to 224 x 224
pixels, flipped and normalised, on one thread, the ways in turn. States the processor time of each image and
how often a way does the work of another one, the median of rounds. torchvision is compared if it is
installed. Run it as ``python tests/benchmarks/bench_crops.py``.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from runpy import run_path

import numpy as np
import torch  # noqa: TID251
from photographs import files_of
from PIL import Image
from streamplug_image import RandomResizedCrop, jpeg
from streamplug_image.crop_box import draw_box
from streamplug_image.fit import Box
from streamplug_image.libturbojpeg import decode_region, load_library

SIZE = (224, 224)
SOURCES = {"500x375": (500, 375), "2000x1500": (2000, 1500)}
QUALITIES = (75, 90, 95)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = 16
ROUNDS_OF_BOXES = 5
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)

Cost = tuple[float, float]
"""Microseconds of processor time, and those without what the system took, such as for page faults."""

Way = Callable[[bytes, int], object]
"""Does something with a file and the number of its random box."""


def box_of(size: tuple[int, int], number: int) -> Box:
    return draw_box(size, np.random.default_rng(number), SCALE, RATIO)


def pillow(file: bytes, number: int) -> np.ndarray:
    """The whole image is decoded; uint8, and not flipped."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    box = box_of((image.height, image.width), number)
    return np.asarray(image.crop(box).resize(SIZE, Image.Resampling.BILINEAR))


def torchvision_ways() -> Iterator[tuple[str, Way]]:
    program = Path(__file__).parents[1] / "integration" / "torchvision_transforms.py"
    try:
        v2 = run_path(str(program))["import_transforms"]()
    except ImportError:
        print("torchvision is not installed, and not compared", file=sys.stderr)
        return
    crop, flip = v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]

    def way(*transforms: Callable[[object], object]) -> Way:
        change = v2.Compose([*transforms, *last])

        def work(file: bytes, number: int) -> object:
            return change(Image.open(io.BytesIO(file)).convert("RGB"))

        return work

    yield "torchvision, of Pillow images", way(crop, flip, v2.ToImage())
    yield "torchvision, of tensors", way(v2.ToImage(), crop, flip)


def ours(**options: object) -> Way:
    crop = RandomResizedCrop(SIZE, **options)  # type: ignore[arg-type]
    return lambda file, number: crop.decode(file, np.random.default_rng(number))


def all_ways() -> dict[str, Way]:
    return {
        **dict(torchvision_ways()),
        "Pillow, uint8": pillow,
        "streamplug": ours(mean=MEAN, std=STD),
        "streamplug, uint8": ours(),
        "streamplug, resized by Pillow": ours(mean=MEAN, std=STD, resampler="pillow"),
    }


def decoders(size: tuple[int, int], files: list[bytes]) -> dict[str, Way]:
    """The library on regions that are known before, and streamplug's choice of them with it."""
    boxes = [box_of(size, number) for number in range(ROUNDS_OF_BOXES * IMAGES)]
    known = {number: region_of(files[0], box) for number, box in enumerate(boxes)}
    cut = [number for number, region in known.items() if region]

    headers = {file: jpeg.read_header(memoryview(file)) for file in files}

    def alone(file: bytes, number: int) -> object:
        eighths, region = known[cut[number % len(cut)]] or (0, (0, 0, 0, 0))
        out = np.empty((region[3], region[2], 3), np.uint8)
        return decode_region(memoryview(file), "RGB", eighths, region, out)

    def chosen(file: bytes, number: int) -> object:
        box = boxes[cut[number % len(cut)]]
        return jpeg.decode_jpeg(
            memoryview(file), headers[file], "RGB", box, SIZE, halves=True, out=None
        )

    return {"the library alone": alone, "streamplug's decoding": chosen}


def region_of(file: bytes, box: Box) -> tuple[int, tuple[int, int, int, int]] | None:
    """Return scale and region that streamplug decodes for a box; None if it decodes the whole image."""
    calls = []
    jpeg.decode_region = lambda *call: calls.append(call)  # type: ignore[assignment,func-returns-value]
    header = jpeg.read_header(memoryview(file))
    jpeg.decode_jpeg(memoryview(file), header, "RGB", box, SIZE, halves=True, out=None)
    jpeg.decode_region = decode_region
    return calls[0][2:4] if calls else None


def measure(ways: dict[str, Way], files: list[bytes], rounds: int) -> dict[str, list[Cost]]:
    """Return the costs of each image by way and round."""
    found: dict[str, list[Cost]] = defaultdict(list)
    for number in range(rounds + 1):
        for name, way in ways.items():
            torch.manual_seed(number)
            before = time.process_time(), getrusage(RUSAGE_SELF).ru_stime
            for place, file in enumerate(files):
                way(file, number % ROUNDS_OF_BOXES * len(files) + place)
            cpu, system = (
                time.process_time() - before[0],
                getrusage(RUSAGE_SELF).ru_stime - before[1],
            )
            if number:  # the first warms up
                found[name].append((cpu / len(files) * 1e6, (cpu - system) / len(files) * 1e6))
    return found


def print_figures(case: str, found: dict[str, list[Cost]], bases: list[str]) -> None:
    print(case)
    for name, costs in found.items():
        cpu, user = (statistics.median(kind) for kind in zip(*costs))
        line = f"  {name:32} {cpu:8.0f} us, {user:8.0f} us without the system's"
        for base in bases:
            if base in found and base != name:
                pairs = [(b[0] / c[0], b[1] / c[1]) for b, c in zip(found[base], costs)]
                both = [statistics.median(kind) for kind in zip(*pairs)]
                line += f"; {both[0]:.2f} ({both[1]:.2f}) x {base}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"parts of images are decoded alone: {load_library() is not None}")
    figures = {}
    for name in arguments.sizes:
        size = SOURCES[name]
        for quality in QUALITIES:
            files = files_of(size, quality, IMAGES)
            case = f"{name}, quality {quality}"
            found = measure(all_ways(), files, arguments.rounds)
            bases = ["torchvision, of Pillow images", "torchvision, of tensors", "Pillow, uint8"]
            print_figures(case, found, bases)
            if load_library() is not None:
                parts = measure(decoders(size[::-1], files), files, arguments.rounds)
                print_figures(f"{case}, decoding of parts", parts, ["the library alone"])
                found = {**found, **parts}
            figures[case] = found
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
