"""Copies to a device: what a training step waits for data, and the bandwidth beside a bare copy.

Usage: python bench_device.py [--device cuda] [--steps 100] [--workers 4] [--json FILE]

A step with the loader's batches is compared with the same step on a batch that stays on the device, in turns.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch  # noqa: TID251
from device_models import GPT, GPTOptions, ResNet50

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset
from streamplug.adapters.torch_device import find_device, move_batches


@dataclass(frozen=True)
class Sizes:
    """What is trained, on how much; the defaults are for a device of 80 GB."""

    gpt: GPTOptions = field(default_factory=GPTOptions)
    rows: int = 8192
    max_gpt_batch: int = 128
    resnet_width: int = 64
    resnet_blocks: tuple[int, ...] = (3, 4, 6, 3)
    pixels: int = 224
    images: int = 4096
    max_resnet_batch: int = 1024
    copy_bytes: tuple[int, ...] = (1 << 20, 1 << 24, 1 << 27)
    copies: int = 50
    warm_up_steps: int = 5


def write_sets(folder: Path, sizes: Sizes) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    length, pixels = sizes.gpt.length + 1, sizes.pixels
    with MDSWriter(
        out=str(folder / "gpt"), columns={"tokens": f"ndarray:uint16:{length}"}
    ) as writer:
        for _ in range(sizes.rows):
            tokens = rng.integers(0, sizes.gpt.vocabulary, length)
            writer.write({"tokens": tokens.astype(np.uint16)})
    columns = {"image": f"ndarray:uint8:{pixels},{pixels},3", "label": "int"}
    with MDSWriter(out=str(folder / "resnet"), columns=columns) as writer:
        for n in range(sizes.images):
            image = rng.integers(0, 256, (pixels, pixels, 3), np.uint8)
            writer.write({"image": image, "label": n % 1000})
    return {"gpt": folder / "gpt", "resnet": folder / "resnet"}


class Trainer:
    """A model and plain gradient descent, in bfloat16 where the device is a GPU."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self.model = model.to(device, memory_format=torch.channels_last)
        self.device = device
        self.parameters = list(self.model.parameters())

    def step(self, batch: Any) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu"):
            loss = self.model(batch)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-1e-3)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def largest_batch(trainer: Trainer, folder: Path, maximum: int) -> int:
    """Return the largest power of 2 samples that a step has memory for."""
    size = maximum
    while size > 1:
        try:
            trainer.step(next(iter(make_loader(folder, size, size, trainer.device, 0))))
            synchronize(trainer.device)
        except torch.OutOfMemoryError:
            size //= 2
        else:
            return size
        torch.cuda.empty_cache()
    return size


def make_loader(
    folder: Path, batch_size: int, samples: int, device: torch.device, workers: int
) -> StreamingDataLoader:
    data = StreamingDataset(
        local=str(folder), batch_size=batch_size, shuffle=True, epoch_size=samples
    )
    return StreamingDataLoader(data, device=device, num_workers=workers)


def seconds_per_step(
    trainer: Trainer, batches: Iterator[Any], steps: int, warm_up_steps: int
) -> tuple[float, float]:
    """Return seconds per step, and those of them within `next`, after the steps of the warm-up."""
    inside, begun, done = 0.0, 0.0, -warm_up_steps
    while True:
        if done == 0:
            synchronize(trainer.device)
            inside, begun = 0.0, time.perf_counter()
        asked = time.perf_counter()
        batch = next(batches)
        inside += time.perf_counter() - asked
        if done == steps:
            break
        trainer.step(batch)
        done += 1
    synchronize(trainer.device)
    return (time.perf_counter() - begun) / steps, inside / steps


def measure_waiting(
    trainer: Trainer,
    load: Callable[[int], StreamingDataLoader],
    steps: int,
    warm_up_steps: int,
    rounds: int,
) -> dict[str, float]:
    """Return the share of a step that waits for data; `load` makes a loader of a number of batches."""
    batches = steps + warm_up_steps + 1
    (fixed,) = load(1)
    rows = []
    for _ in range(rounds):
        bare, _ = seconds_per_step(trainer, iter([fixed] * batches), steps, warm_up_steps)
        loaded, inside = seconds_per_step(trainer, iter(load(batches)), steps, warm_up_steps)
        rows.append((1 - bare / loaded, bare, loaded, inside))
    share, bare, loaded, inside = (median(column) for column in zip(*rows))
    return {
        "waiting": share,
        "seconds without a loader": bare,
        "seconds": loaded,
        "seconds in next": inside,
    }


def measure_copies(size: int, count: int, device: torch.device, rounds: int) -> dict[str, float]:
    """Return bytes per second to the device: of a bare copy from pinned memory, and of `move_batches`."""
    host = torch.ones(size, dtype=torch.uint8)
    pinned = host.pin_memory() if device.type == "cuda" else host
    target = torch.empty_like(host, device=device)

    def bare() -> None:
        for _ in range(count):
            target.copy_(pinned, non_blocking=True)

    def moved(source: torch.Tensor) -> None:
        for _ in move_batches(iter([source] * count), device):
            pass

    ways: dict[str, Callable[[], None]] = {
        "bare": bare,
        "pinned": lambda: moved(pinned),
        "staged": lambda: moved(host),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 1):
        for way, run in ways.items():
            synchronize(device)
            begun = time.perf_counter()
            run()
            synchronize(device)
            found[way].append(size * count / (time.perf_counter() - begun))
    return {"bytes": size} | {way: median(rates[1:]) for way, rates in found.items()}


def measure(
    device: torch.device, sizes: Sizes, steps: int, workers: int, rounds: int
) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    figures: dict[str, Any] = {"device": name, "torch": torch.__version__, "workers": workers}
    figures["copies"] = [
        measure_copies(size, sizes.copies, device, rounds) for size in sizes.copy_bytes
    ]
    models = {
        "gpt": (lambda: GPT(sizes.gpt), sizes.max_gpt_batch),
        "resnet": (
            lambda: ResNet50(sizes.resnet_width, sizes.resnet_blocks),
            sizes.max_resnet_batch,
        ),
    }
    figures["steps"] = {}
    with tempfile.TemporaryDirectory() as folder:
        sets = write_sets(Path(folder), sizes)
        for model, (make, maximum) in models.items():
            trainer = Trainer(make(), device)
            batch = largest_batch(trainer, sets[model], maximum)

            def load(batches: int, folder: Path = sets[model], size: int = batch) -> Any:
                return make_loader(folder, size, size * batches, device, workers)

            figures["steps"][model] = {"batch": batch} | measure_waiting(
                trainer, load, steps, sizes.warm_up_steps, rounds
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = find_device(arguments.device)
    if device is None or device.type not in {"cuda", "cpu"}:
        parser.error(f"--device {arguments.device}: cuda or cpu")
    figures = measure(device, Sizes(), arguments.steps, arguments.workers, arguments.rounds)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
