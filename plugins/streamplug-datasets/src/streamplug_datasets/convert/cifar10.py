"""CIFAR-10: batches as pickles of Python, or as binary records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from streamplug.errors import DataError, NotFound
from streamplug_datasets.convert import files
from streamplug_datasets.convert.pickles import PickledArray, load
from streamplug_datasets.convert.run import Split, cut, shuffled
from streamplug_datasets.options import converter, seed

COLUMNS = {"i": "int", "x": "pil", "y": "int"}
SIZES = {"train": 50_000, "val": 10_000}
BATCHES = {"train": [f"data_batch_{n}" for n in range(1, 6)], "val": ["test_batch"]}
CLASSES = 10
_NAMES = (*BATCHES["train"], *BATCHES["val"])
_PIXELS = 3 * 32 * 32
_PART = 10_000

Labels = NDArray[np.uint8]
Pixels = NDArray[np.uint8]


@converter(splits=list(SIZES), size_limit="1mb")
@seed
def command(root: Path, splits: Sequence[str], *, seed: int, allow_partial: bool) -> list[Split]:
    """Convert CIFAR-10.

    --in has data_batch_1 … data_batch_5 and test_batch, or these with .bin, or a folder
    cifar-10-batches-py or cifar-10-batches-bin with them.
    """
    _all.cache_clear()  # the files may have changed since another call in this process
    home, ending = _home(root)
    planned = []
    for split in splits:
        paths = [home / f"{name}{ending}" for name in BATCHES[split]]
        if allow_partial:
            paths = [path for path in paths if path.is_file()]
        elif missing := [path for path in paths if not path.is_file()]:
            raise NotFound(
                f"{missing[0]}: there is no such file; pass --allow-partial for a part of {split}"
            )
        batches = [str(files.file(path)) for path in paths]
        count = sum(len(read(path)[0]) for path in batches)
        files.expect(count, SIZES[split], f"{home}: images of {split}", allow_partial=allow_partial)
        order = shuffled(range(count), seed)
        planned.append(Split(split, COLUMNS, samples, cut(order, _PART, batches=batches)))
    return planned


def _home(root: Path) -> tuple[Path, str]:
    for folder, ending in (("cifar-10-batches-py", ""), ("cifar-10-batches-bin", ".bin")):
        for home in (root / folder, root):
            if any((home / f"{name}{ending}").exists() for name in _NAMES):
                return home, ending
    raise NotFound(
        f"{root}: there is no data_batch_1, nor data_batch_1.bin, here or in cifar-10-batches-*"
    )


def samples(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part: their places among all batches."""
    labels, pixels = _all(tuple(part["batches"]))
    for at in part["items"]:
        image = Image.fromarray(pixels[at].reshape(3, 32, 32).transpose(1, 2, 0), "RGB")
        yield {"i": at, "x": image, "y": int(labels[at])}


@lru_cache(1)
def _all(batches: tuple[str, ...]) -> tuple[Labels, Pixels]:
    labels, pixels = zip(*(read(path) for path in batches))
    return np.concatenate(labels), np.concatenate(pixels)


def read(path: str) -> tuple[Labels, Pixels]:
    """Return labels and pixels of a batch, shapes ``[n]`` and ``[n, 3072]``.

    Raises:
        DataError: If it is damaged.
    """
    labels, pixels = _binary(path) if path.endswith(".bin") else _pickled(Path(path))
    if len(labels) and labels.max() >= CLASSES:
        raise DataError(
            f"{path}: image {int(labels.argmax())} has label {labels.max()}, of {CLASSES} classes"
        )
    return labels, pixels


def _binary(path: str) -> tuple[Labels, Pixels]:
    data = np.fromfile(path, np.uint8)
    if not data.size or data.size % (1 + _PIXELS):
        raise DataError(f"{path}: {data.size:,} bytes are no whole records of {1 + _PIXELS:,}")
    records = data.reshape(-1, 1 + _PIXELS)
    return records[:, 0], records[:, 1:]


def _pickled(path: Path) -> tuple[Labels, Pixels]:
    content = load(path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: a {type(content).__name__} where a dict was expected")
    values = {
        key.decode("latin-1") if isinstance(key, bytes) else key: content[key] for key in content
    }
    data, labels = values.get("data"), values.get("labels")
    if not isinstance(data, PickledArray) or not isinstance(labels, list):
        raise DataError(f"{path}: lacks an array 'data' or a list 'labels'")
    try:
        pixels = data.array()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    if pixels.shape != (len(labels), _PIXELS):
        raise DataError(
            f"{path}: data of shape {pixels.shape} and {len(labels)} labels; expected [n, {_PIXELS}] and n"
        )
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise DataError(f"{path}: labels that are no numbers")
    return np.array(labels, np.uint8), pixels
