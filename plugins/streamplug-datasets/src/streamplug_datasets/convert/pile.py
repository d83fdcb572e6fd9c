"""The Pile: lines of JSON in files of Zstandard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamplug.errors import DataError, NotFound
from streamplug_datasets.convert import files
from streamplug_datasets.convert.run import Split
from streamplug_datasets.convert.text import json_lines
from streamplug_datasets.options import converter

COLUMNS = {"text": "str", "pile_set_name": "str"}
SIZES = {"train": 210_607_728, "val": 214_670, "test": 214_584}
NAMES = {"train": [f"train/{n:02}" for n in range(30)], "val": ["val"], "test": ["test"]}
ENDINGS = (".jsonl.zst", ".jsonl")


@converter(splits=list(SIZES), compression="zstd:16", size_limit="128mb")
def command(root: Path, splits: Sequence[str], *, allow_partial: bool) -> list[Split]:
    """Convert The Pile.

    --in has train/00.jsonl.zst … train/29.jsonl.zst, val.jsonl.zst and test.jsonl.zst; decompressed, without
    .zst, they will do as well.
    """
    files.folder(root)
    planned = []
    for split in splits:
        files_by_name = [(name, _find(root, name)) for name in NAMES[split]]
        for name, path in files_by_name:
            if path is None and not allow_partial:
                raise NotFound(f"{root / name}{ENDINGS[0]}: there is no such file")
        paths = [str(files.file(path)) for _, path in files_by_name if path is not None]
        if not paths:
            raise NotFound(f"{root / NAMES[split][0]}{ENDINGS[0]}: there is no such file")
        size = None if allow_partial else SIZES[split]
        planned.append(Split(split, COLUMNS, samples, paths, size))
    return planned


def _find(root: Path, name: str) -> Path | None:
    paths = (root / f"{name}{ending}" for ending in ENDINGS)
    return next((path for path in paths if path.exists()), None)


def samples(part: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file."""
    path = Path(part)
    for number, document in enumerate(json_lines(path, {"text": str, "meta": dict}), 1):
        meta = document["meta"]
        if meta.keys() != {"pile_set_name"} or not isinstance(meta["pile_set_name"], str):
            raise DataError(f"{path}: line {number}: meta is {meta!r:.100}, not a pile_set_name")
        yield {"text": document["text"], "pile_set_name": meta["pile_set_name"]}
