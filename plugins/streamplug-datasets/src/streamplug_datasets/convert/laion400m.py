"""LAION-400M: what img2dataset has fetched, in files of Parquet."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from streamplug.errors import DataError
from streamplug.plugin_kit import parsing
from streamplug_datasets.convert import files
from streamplug_datasets.convert.failure_report import FailureReport
from streamplug_datasets.convert.parquet import ParquetTable
from streamplug_datasets.convert.run import Split
from streamplug_datasets.options import converter

COLUMNS = {
    "nsfw": "str",
    "similarity": "float64",
    "license": "str",
    "caption": "str",
    "url": "str",
    "key": "str",
    "status": "str",
    "error_message": "str",
    "width": "int32",
    "height": "int32",
    "original_width": "int32",
    "original_height": "int32",
    "exif": "str",
    "jpg": "bytes",
}
_NAMES = {"nsfw": "NSFW", "license": "LICENSE"}
"""What two of them are called in the original."""
SUCCESS = "success"
_JPEG = b"\xff\xd8\xff"
_ROWS_PER_READ = 256


@converter(size_limit="64mb", whole=False)
@click.option(
    "--only-images", is_flag=True, help="Leave out rows whose image could not be downloaded."
)
@click.pass_context
def command(context: click.Context, root: Path, *, only_images: bool) -> list[Split]:
    """Convert LAION-400M, as img2dataset has fetched it in the format parquet.

    --in has 00000.parquet and 00000_stats.json, and so on. Rows whose image could not be downloaded have a
    status that says so, and an empty image.
    """
    paths = sorted(path for path in root.glob("[!.]*.parquet"))
    if not paths:
        raise DataError(f"{root}: there are no *.parquet")
    for path in paths:
        files.file(path)
        files.file(_stats(path))  # is there once the file is whole
    failures = f"{context.params['out'].rstrip('/')}/failures"
    parts = [
        {"path": str(path), "number": number, "only_images": only_images}
        for number, path in enumerate(paths)
    ]
    make = partial(samples, failures=failures)
    return [Split("", COLUMNS, make, parts, failures=failures)]


def _stats(path: Path) -> Path:
    return path.with_name(f"{path.stem}_stats.json")


def samples(part: dict[str, Any], *, failures: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file."""
    path, lost = Path(part["path"]), FailureReport()
    count = 0
    columns = [_NAMES.get(name, name) for name in COLUMNS]
    for row in ParquetTable(path, columns).rows(_ROWS_PER_READ):
        count += 1
        with parsing(f"{path}: row {count}"):
            sample = _sample(row)
            is_jpeg = sample["jpg"].startswith(_JPEG)
        good = sample["status"] == SUCCESS
        if good and not is_jpeg:
            raise DataError(
                f"{path}: row {count}: its status is {SUCCESS}, but it has no JPEG image"
            )
        if not good:
            lost.add(sample["status"])
        if good or not part["only_images"]:
            yield sample
    _check(path, count, count - lost.kinds.total())
    lost.write(failures, part["number"], count, 1)


def _check(path: Path, count: int, good: int) -> None:
    """Check that there is what img2dataset says it has written."""
    stats = _stats(path)
    with parsing(str(stats)):
        content = json.loads(stats.read_bytes())
        counts = (int(content["count"]), int(content["successes"]))
    if counts != (count, good):
        raise DataError(
            f"{path}: {count:,} rows with {good:,} images, {stats.name} says {counts[0]:,} with {counts[1]:,}"
        )


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with values where it has none."""
    sample: dict[str, Any] = {}
    for name, spec in COLUMNS.items():
        value = row[_NAMES.get(name, name)]
        if spec == "str":
            sample[name] = "" if value is None else str(value)
        elif spec == "int32":
            sample[name] = 0 if value is None or math.isnan(value) else int(value)
        elif spec == "bytes":
            sample[name] = value or b""
        else:
            sample[name] = math.nan if value is None else float(value)
    return sample
