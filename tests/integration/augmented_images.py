"""A rank that reads images with random crops and flips, and writes its batches and its state down.

augmented_images.py DATA OUT KIND RANKS RANK WORKERS METHOD STEPS
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import torch  # noqa: TID251

from streamplug import StreamingDataLoader, StreamingDataset, World

GLOBAL_BATCH = 12  # an epoch has 5 steps
CROP = 12


def by_generator(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    image = np.asarray(sample["image"])
    top, left = rng.integers(0, np.array(image.shape[:2]) - CROP + 1)
    image = image[top : top + CROP, left : left + CROP]
    image = image[:, ::-1] if rng.random() < 0.5 else image
    return {"id": sample["id"], "image": image.copy()}


@cache
def torchvision_transform() -> Any:
    program = Path(__file__).with_name("torchvision_transforms.py")
    v2 = run_path(str(program))["import_transforms"]()
    crop, jitter = v2.RandomResizedCrop(CROP), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)
    changes = [crop, v2.RandomHorizontalFlip(), v2.RandAugment(), jitter]
    return v2.Compose([*changes, v2.ToImage()])


def by_torchvision(sample: dict[str, Any]) -> dict[str, Any]:
    return {"id": sample["id"], "image": torch.as_tensor(torchvision_transform()(sample["image"]))}


@cache
def albumentations_transform() -> Any:
    import albumentations

    names = ("HorizontalFlip", "RandomBrightnessContrast", "GaussNoise")
    changes = [getattr(albumentations, name)() for name in names]
    return albumentations.Compose([albumentations.RandomCrop(CROP, CROP), *changes])


def by_albumentations(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    augment = albumentations_transform()
    augment.set_random_seed(int(rng.integers(1 << 32)))
    image = augment(image=np.asarray(sample["image"]))["image"]
    return {"id": sample["id"], "image": image.copy()}


KINDS = {
    "generator": {"transform": by_generator},
    "torchvision": {"transform": by_torchvision, "seed_torch": True},
    "albumentations": {"transform": by_albumentations},
}


def make_loader(
    data: str, kind: str, *, ranks: int = 1, rank: int = 0, **options: Any
) -> StreamingDataLoader:
    world = World(ranks_per_node=ranks, rank=rank)
    batch = GLOBAL_BATCH // ranks
    dataset = StreamingDataset(local=data, shuffle=True, batch_size=batch, world=world)
    return StreamingDataLoader(dataset, **KINDS[kind], **options)


def pixels(batch: dict[str, Any]) -> dict[int, bytes]:
    """Return the pixels of each sample of a batch, which none repeats."""
    return {n: image.numpy().tobytes() for n, image in zip(batch["id"].tolist(), batch["image"])}


def write(path: Path, text: str) -> None:
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def main() -> None:
    data, out, kind, ranks, rank, workers, method, steps = sys.argv[1:]
    place, options = Path(out), {}
    if int(workers):
        options = {
            "num_workers": int(workers),
            "multiprocessing_context": method,
            "persistent_workers": True,
        }
    loader = make_loader(data, kind, ranks=int(ranks), rank=int(rank), **options)
    step = 0
    if (place / "state.json").exists():
        step, state = json.loads((place / "state.json").read_text())
        loader.load_state_dict(state)
    while step < int(steps):
        for batch in loader:
            found = {n: image.hex() for n, image in pixels(batch).items()}
            write(place / f"{step}-{ranks}-{rank}.json", json.dumps(found))
            step += 1
            if ranks == "1":
                write(place / "state.json", json.dumps([step, loader.state_dict()]))
            if step == int(steps):
                break


if __name__ == "__main__":
    main()
