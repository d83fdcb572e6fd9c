"""COCO detection: images, and their boxes in instances_*.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamplug.errors import DataError
from streamplug.plugin_kit import parsing
from streamplug_datasets.convert import files
from streamplug_datasets.convert.images import jpeg
from streamplug_datasets.convert.run import Split, cut, shuffled
from streamplug_datasets.options import converter, seed

COLUMNS = {
    "img": "jpeg",
    "img_id": "int",
    "htot": "int",
    "wtot": "int",
    "bbox_sizes": "ndarray:float32",
    "bbox_labels": "ndarray:int64",
}
SIZES = {"train": 117_266, "val": 4952}
"""Images that have boxes."""
_PART = 2048


@converter(splits=list(SIZES), size_limit="32mb")
@seed
def command(root: Path, splits: Sequence[str], *, seed: int, allow_partial: bool) -> list[Split]:
    """Convert COCO 2017, for detection.

    --in has train2017/….jpg, val2017/….jpg, annotations/instances_train2017.json and instances_val2017.json.
    Images without boxes are left out. Only train is stored in random order. Classes count from 1 in
    the order of "categories"; boxes are left, top, right and bottom as parts of width and height.
    """
    planned = []
    for split in splits:
        home = files.folder(root / f"{split}2017")
        path = files.file(root / "annotations" / f"instances_{split}2017.json")
        items = [item for item in _images(path) if item[-1]]
        what = f"{path}: images with boxes"
        files.expect(len(items), SIZES[split], what, allow_partial=allow_partial)
        for name, *_ in items:
            files.file(home / name)
        order = shuffled(items, seed) if split == "train" else items
        planned.append(Split(split, COLUMNS, samples, cut(order, _PART, home=str(home))))
    return planned


def _images(path: Path) -> list[list[Any]]:
    """Return the images: file, number, height, width, boxes one after the other, classes."""
    with parsing(f"{path}", "expected annotations of COCO for detection"):
        with path.open(encoding="utf-8") as stream:
            content = json.load(stream, object_hook=_lean)
        labels = {entry["id"]: number for number, entry in enumerate(content["categories"], 1)}
        images: dict[int, list[Any]] = {}
        for entry in content["images"]:
            if entry["id"] in images:
                raise DataError(f"{path}: image {entry['id']} is there twice")
            name = entry["file_name"]
            if Path(name).name != name:
                raise DataError(f"{path}: image {entry['id']}: {name!r} is no name of a file")
            images[entry["id"]] = [name, entry["id"], entry["height"], entry["width"], [], []]
        for number, entry in enumerate(content["annotations"]):
            _add(entry, images, labels, f"{path}: annotation {entry.get('id', number)}")
    return list(images.values())


def _lean(value: dict[str, Any]) -> dict[str, Any]:
    value.pop("segmentation", None)  # most of the memory that the file would take
    return value


def _add(
    annotation: dict[str, Any], images: dict[int, list[Any]], labels: dict[int, int], where: str
) -> None:
    if annotation["image_id"] not in images:
        raise DataError(f"{where}: there is no image {annotation['image_id']}")
    if annotation["category_id"] not in labels:
        raise DataError(f"{where}: there is no category {annotation['category_id']}")
    box = annotation["bbox"]
    if len(box) != 4 or not all(isinstance(n, (int, float)) and 0 <= n < 1 << 20 for n in box):
        raise DataError(f"{where}: {box!r:.80} is no box")
    _, _, _, _, boxes, classes = images[annotation["image_id"]]
    boxes += box
    classes.append(labels[annotation["category_id"]])


def samples(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part."""
    home = Path(part["home"])
    for name, number, height, width, boxes, labels in part["items"]:
        image, size = jpeg(home / name)
        if size != (width, height):
            raise DataError(
                f"{home / name}: {size[0]} x {size[1]} pixels, its annotation says {width} x {height}"
            )
        left, top, wide, high = np.array(boxes, np.float64).reshape(-1, 4).T
        sides = [left / width, top / height, (left + wide) / width, (top + high) / height]
        yield {
            "img": image,
            "img_id": number,
            "htot": height,
            "wtot": width,
            "bbox_sizes": np.stack(sides, 1).astype(np.float32),
            "bbox_labels": np.array(labels, np.int64),
        }
