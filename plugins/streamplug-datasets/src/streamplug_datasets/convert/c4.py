"""Conversion of C4, which is JSON lines in gzip files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamplug.errors import DataError, NotFound
from streamplug_datasets.convert import files
from streamplug_datasets.convert.run import Split
from streamplug_datasets.convert.text import json_lines
from streamplug_datasets.options import converter

COLUMNS = {"text": "str", "timestamp": "str", "url": "str"}
NAMES = {"train": "train", "val": "validation"}
SIZES = {"train": 364_868_892, "val": 364_608}
"""Of the English one, folder ``en``."""
FILES = {"train": 1024, "val": 8}


@converter(splits=list(SIZES), compression="zstd:7", size_limit="128mb")
def command(root: Path, splits: Sequence[str], *, allow_partial: bool) -> list[Split]:
    """Convert C4, the English one ("en").

    --in has c4-train.00000-of-01024.json.gz … and c4-validation.00000-of-00008.json.gz …, or a folder en
    with them. Other variants, whose numbers are others, need --allow-partial.
    """
    home = root / "en" if (root / "en").is_dir() else root
    planned = []
    for split in splits:
        paths = sorted(home.glob(f"c4-{NAMES[split]}.*-of-*.json.gz"))
        if not paths:
            raise NotFound(f"{home}: there is no c4-{NAMES[split]}.*.json.gz")
        if not allow_partial:
            _check(paths, split)
        size = None if allow_partial else SIZES[split]
        parts = [str(files.file(path)) for path in paths]
        planned.append(Split(split, COLUMNS, samples, parts, size))
    return planned


def _check(paths: Sequence[Path], split: str) -> None:
    """Check that all files are there that their names speak of."""
    count = FILES[split]
    names = {path.name for path in paths}
    for number in range(count):
        name = f"c4-{NAMES[split]}.{number:05}-of-{count:05}.json.gz"
        if name not in names:
            raise NotFound(
                f"{paths[0].parent / name}: there is no such file; pass --allow-partial for a part of C4"
            )
    for name in sorted(names):
        if re.search(rf"-of-{count:05}\.", name) is None:
            raise DataError(
                f"{paths[0].parent / name}: a file of another C4; keep each in a folder"
            )


def samples(part: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file."""
    yield from json_lines(Path(part), dict.fromkeys(COLUMNS, str))
