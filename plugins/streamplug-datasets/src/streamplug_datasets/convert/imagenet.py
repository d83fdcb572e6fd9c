"""ImageNet (ILSVRC 2012): a folder of JPEG files for each class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from streamplug.errors import DataError
from streamplug_datasets.convert import files
from streamplug_datasets.convert.images import jpeg
from streamplug_datasets.convert.run import Split, cut, shuffled
from streamplug_datasets.options import converter, seed

COLUMNS = {"i": "int", "x": "jpeg", "y": "int"}
SIZES = {"train": 1_281_167, "val": 50_000}
CLASSES = 1000
_PART = 8192


@converter(splits=list(SIZES), size_limit="64mb")
@click.option(
    "--extensions",
    default="jpeg",
    show_default=True,
    help="How names of images end, in any case, with commas between.",
)
@seed
def command(
    root: Path, splits: Sequence[str], *, extensions: str, seed: int, allow_partial: bool
) -> list[Split]:
    """Convert ImageNet, that of ILSVRC 2012.

    --in has train/n01440764/….JPEG and val/n01440764/….JPEG, a folder for each class. Classes count from 0 in
    the order of the names of their folders.
    """
    endings = tuple(f".{name.lower()}" for name in extensions.split(","))
    names: list[str] | None = None
    planned = []
    for split in splits:
        home = files.folder(root / split)
        classes = _classes(home)
        files.expect(len(classes), CLASSES, f"{home}: classes", allow_partial=allow_partial)
        if names is not None and classes != names:
            raise DataError(
                f"{home}: other classes than in {splits[0]}: {sorted(set(classes) ^ set(names))[:3]} …"
            )
        names = classes
        images = [
            (name, label)
            for label, folder in enumerate(classes)
            for name in _images(home / folder, endings)
        ]
        items = [[i, name, label] for i, (name, label) in enumerate(images)]
        files.expect(len(items), SIZES[split], f"{home}: images", allow_partial=allow_partial)
        parts = cut(shuffled(items, seed), _PART, home=str(home))
        planned.append(Split(split, COLUMNS, samples, parts))
    return planned


def _classes(home: Path) -> list[str]:
    with os.scandir(home) as entries:
        listed = [(e.name, e.is_dir()) for e in entries if not e.name.startswith(".")]
    loose = sorted(name for name, is_folder in listed if not is_folder)
    if loose:
        raise DataError(f"{home}/{loose[0]}: a file where there are only folders of classes")
    return sorted(name for name, _ in listed)


def _images(folder: Path, endings: tuple[str, ...]) -> list[str]:
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    for name in names:
        if not name.lower().endswith(endings):
            raise DataError(f"{folder}/{name}: not one of {', '.join(endings)}; see --extensions")
    if not names:
        raise DataError(f"{folder}: a class without images")
    return [f"{folder.name}/{name}" for name in names]


def samples(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part: number, path and class of each."""
    home = Path(part["home"])
    for i, name, label in part["items"]:
        yield {"i": i, "x": jpeg(home / name)[0], "y": label}
