"""What bench_landing.py measures of random crops: JPEG files to batches of 224 x 224 pixels, uint8.

Other libraries than streamplug decode nothing themselves: their transform decodes with Pillow, as that of
torchvision's ``ImageFolder`` does, and crops with torchvision. It makes a tensor of the image first, which
is faster than to crop Pillow's image.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
from read_peers import (
    hf_loader,
    litdata_loader,
    mosaic_loader,
    torch_loader,
    webdataset_loader,
)
from read_sides import Epochs, ours_loader

SIZE, BATCH = (224, 224), 64
PREFETCHED = 4
"""Batches that SPDL makes ahead of use, as many as two workers of torch's loader do."""


@cache
def torchvision_crop() -> Any:
    program = Path(__file__).parents[1] / "integration" / "torchvision_transforms.py"
    v2 = run_path(str(program))["import_transforms"]()
    crop = v2.RandomResizedCrop(SIZE, antialias=True)
    return v2.Compose([v2.ToImage(), crop, v2.RandomHorizontalFlip()])


def crop_file(file: bytes) -> Any:
    """Return a random crop as a tensor."""
    from PIL import Image

    return torchvision_crop()(Image.open(io.BytesIO(file)).convert("RGB"))


def crop_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {"image": crop_file(sample["image"])}


def crop_samples(samples: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {"image": list(map(crop_file, samples["image"]))}


def crop_member(sample: dict[str, Any]) -> Any:
    return crop_file(sample["jpg"])


def crop_array(file: bytes) -> np.ndarray:
    return crop_file(file).numpy()


def crop_path(path: Path) -> Any:
    return crop_file(path.read_bytes())


def ours(data: Path, samples: int, **options: Any) -> Epochs:
    from streamplug_image import RandomResizedCrop

    return ours_loader(data, samples, batch=BATCH, transform=RandomResizedCrop(SIZE), **options)


def image_folder(data: Path, samples: int) -> Epochs:
    transform = torchvision_crop()
    from torchvision.datasets import ImageFolder

    return torch_loader(ImageFolder(str(data), transform), 2, BATCH, shuffle=True)


def spdl_threads(data: Path, samples: int) -> Epochs:
    import torch  # noqa: TID251
    from spdl.pipeline import PipelineBuilder

    paths, rng = sorted(data.glob("*/*.jpg")), np.random.default_rng(1)

    def batches() -> Iterator[Any]:
        order = [paths[number] for number in rng.permutation(len(paths))]
        building = PipelineBuilder().add_source(order).pipe(crop_path, concurrency=2)
        building = building.aggregate(BATCH).pipe(torch.stack).add_sink(PREFETCHED)
        pipeline = building.build(num_threads=3)  # one makes batches of crops
        with pipeline.auto_stop():
            yield from pipeline

    while True:
        yield batches(), BATCH


def _grain(data: Path, seed: int, threads: int) -> Any:
    import grain

    source = grain.sources.ArrayRecordDataSource(str(data / "bench.array_record"))
    crops = grain.MapDataset.source(source).shuffle(seed=seed).map(crop_array)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads * BATCH)
    return crops.to_iter_dataset(options).batch(BATCH)


def grain_threads(data: Path, samples: int) -> Epochs:
    for seed in range(1 << 30):
        yield _grain(data, seed, threads=2), BATCH


def grain_workers(data: Path, samples: int) -> Epochs:
    import grain

    options = grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2)
    for seed in range(1 << 30):
        yield _grain(data, seed, threads=0).mp_prefetch(options), BATCH


with_pillow = partial(ours_loader, batch=BATCH, transform=crop_sample)
webdataset = partial(webdataset_loader, workers=2, batch=BATCH, transform=crop_member)
litdata = partial(litdata_loader, workers=2, batch=BATCH, transform=crop_sample)
mosaic = partial(mosaic_loader, workers=2, batch=BATCH, transform=crop_sample)
hf = partial(hf_loader, workers=2, batch=BATCH, transform=crop_samples)
