"""ADE20K for scene parsing: images, and images of their classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamplug.errors import DataError
from streamplug_datasets.convert import files
from streamplug_datasets.convert.images import classes, jpeg
from streamplug_datasets.convert.run import Split, cut, shuffled
from streamplug_datasets.options import converter, seed

COLUMNS = {"uid": "bytes", "x": "jpeg", "y": "png"}
FOLDERS = {"train": "training", "val": "validation"}
SIZES = {"train": 20_206, "val": 2000}
CLASSES = 150
LEFT_OUT = {"train": {"00001701", "00003020", "00008455", "00013508"}, "val": set[str]()}
"""Images that mosaicml-streaming takes for damaged; 20,210 with them."""
_PART = 1000


@converter(splits=list(SIZES), size_limit="4mb")
@seed
def command(root: Path, splits: Sequence[str], *, seed: int, allow_partial: bool) -> list[Split]:
    """Convert ADE20K, that of the scene parsing challenge (ADEChallengeData2016).

    --in has images/training/ADE_train_00000001.jpg, annotations/training/ADE_train_00000001.png, and the same
    in validation with ADE_val_. Only train is stored in random order. Four images of train are left
    out, as in mosaicml-streaming: 00001701, 00003020, 00008455, 00013508.
    """
    planned = []
    for split in splits:
        home = files.folder(root / "images" / FOLDERS[split])
        masks = files.folder(root / "annotations" / FOLDERS[split])
        prefix = f"ADE_{split}_"
        uids = sorted(path.stem.removeprefix(prefix) for path in home.glob(f"{prefix}*.jpg"))
        uids = [uid for uid in uids if uid not in LEFT_OUT[split]]
        files.expect(len(uids), SIZES[split], f"{home}: images", allow_partial=allow_partial)
        for uid in uids:
            files.file(masks / f"{prefix}{uid}.png")
        order = shuffled(uids, seed) if split == "train" else uids
        parts = cut(order, _PART, images=str(home / prefix), masks=str(masks / prefix))
        planned.append(Split(split, COLUMNS, samples, parts))
    return planned


def samples(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part."""
    for uid in part["items"]:
        path, mask = Path(f"{part['images']}{uid}.jpg"), Path(f"{part['masks']}{uid}.png")
        x, size = jpeg(path)
        y, mask_size = classes(mask, CLASSES)
        if mask_size != size:
            raise DataError(
                f"{mask}: {mask_size[0]} x {mask_size[1]} pixels, its image has {size[0]} x {size[1]}"
            )
        yield {"uid": uid.encode(), "x": x, "y": y}
