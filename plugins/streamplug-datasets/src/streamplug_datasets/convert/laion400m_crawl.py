"""LAION-400M from its metadata: the images are fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from io import BytesIO
from itertools import islice, tee
from pathlib import Path
from typing import Any

import click
from PIL import ExifTags, Image
from streamplug_image.files import open_file
from streamplug_image.orientation import find_orientation

from streamplug.config import parse_bytes
from streamplug.errors import DataError
from streamplug.plugin_kit import parsing
from streamplug_datasets.convert import crawl as crawling
from streamplug_datasets.convert.crawl import Crawl, Failed, fetch_all
from streamplug_datasets.convert.failure_report import FailureReport
from streamplug_datasets.convert.images import to_rgb
from streamplug_datasets.convert.laion400m import COLUMNS, SUCCESS
from streamplug_datasets.convert.parquet import ParquetTable
from streamplug_datasets.convert.run import Split
from streamplug_datasets.options import converter

_WANTED = ["SAMPLE_ID", "URL", "TEXT", "LICENSE", "NSFW", "similarity"]
_ROWS_PER_READ = 1024
_EXIF = 1 << 16


@converter(size_limit="64mb", whole=False)
@click.option("--only-images", is_flag=True, help="Leave out rows whose image cannot be had.")
@click.option(
    "--image-size",
    default=256,
    type=click.IntRange(0),
    show_default=True,
    help="Pixels to which the shorter side is reduced; 0 leaves images as they are.",
)
@click.option(
    "--part", default=10_000, type=click.IntRange(1), show_default=True, help="Rows of a part."
)
@click.option("--max-bytes", default="32mb", show_default=True, help="Of an image.")
@crawling.options
@click.pass_context
def command(
    context: click.Context,
    root: Path,
    *,
    only_images: bool,
    image_size: int,
    part: int,
    max_bytes: str,
    threads: int,
    timeout: float,
    deadline: float,
    retries: int,
    max_failed: float,
    allow_private: bool,
) -> list[Split]:
    """Convert LAION-400M from its metadata: fetch the images.

    --in has part-*.parquet with the columns SAMPLE_ID, URL, TEXT, LICENSE, NSFW and similarity. Images
    become JPEG, unless they are and need not be reduced. Failed downloads are counted by kind, in the
    folder failures of --out. A run that was killed goes on where it stood.
    """
    crawling.check_installed()
    paths = sorted(root.glob("[!.]*.parquet"))
    if not paths:
        raise DataError(f"{root}: there are no *.parquet")
    failures = f"{context.params['out'].rstrip('/')}/failures"
    size = parse_bytes(max_bytes, "max_bytes")
    settings = Crawl(threads, timeout, deadline, retries, size, allow_private)
    make = partial(samples, crawl=settings, max_failed=max_failed, failures=failures)
    common = {"only_images": only_images, "image_size": image_size}
    places = [
        {"path": str(path), "group": group, "start": start, "rows": min(part, count - start)}
        for path in paths
        for group, count in enumerate(ParquetTable(path, _WANTED).groups)
        for start in range(0, count, part)
    ]
    parts = [{**common, **place, "number": number} for number, place in enumerate(places)]
    return [Split("", COLUMNS, make, parts, failures=failures)]


def samples(
    part: dict[str, Any], *, crawl: Crawl, max_failed: float, failures: str
) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part."""
    start, count = part["start"], part["rows"]
    table = ParquetTable(Path(part["path"]), _WANTED)
    rows, again = tee(islice(table.rows(_ROWS_PER_READ, part["group"], start), count))
    lost = FailureReport()
    with closing(fetch_all((_url(row, part["path"]) for row in rows), crawl)) as responses:
        for row, response in zip(again, responses):
            status, message, image = SUCCESS, "", _NOTHING
            if isinstance(response, Failed):
                status, message = "failed_to_download", str(response)
                lost.add(response.kind)
            else:
                try:
                    image = _image(response, part["image_size"])
                except Exception as error:  # noqa: BLE001 - decoders raise what they run into
                    status, message = "failed_to_resize", f"{type(error).__name__}: {error}"
                    lost.add("no image")
            if status == SUCCESS or not part["only_images"]:
                with parsing(f"{part['path']}: the row of {row['URL']!r:.200}"):
                    about = _about(row)
                yield {**about, **image, "status": status, "error_message": message}
    lost.write(failures, part["number"], count, max_failed)


def _url(row: dict[str, Any], path: str) -> str:
    url = row["URL"] or ""
    if not isinstance(url, str):
        raise DataError(f"{path}: the URL {url!r:.40} is not text")
    return url


def _about(row: dict[str, Any]) -> dict[str, Any]:
    similarity = row["similarity"]
    return {
        "nsfw": row["NSFW"] or "",
        "similarity": float("nan") if similarity is None else float(similarity),
        "license": row["LICENSE"] or "",
        "caption": row["TEXT"] or "",
        "url": row["URL"] or "",
        "key": "" if row["SAMPLE_ID"] is None else str(int(row["SAMPLE_ID"])),
    }


_NOTHING: dict[str, Any] = {
    "width": 0,
    "height": 0,
    "original_width": 0,
    "original_height": 0,
    "exif": "",
    "jpg": b"",
}


def _image(data: bytes, size: int) -> dict[str, Any]:
    """Return what a sample says of an image, and the image."""
    with open_file(memoryview(data)) as image:
        before = image.size
        exif = {ExifTags.TAGS.get(tag, str(tag)): str(v) for tag, v in image.getexif().items()}
        image.load()
        shorter = min(before)
        after = before
        if size and shorter > size:
            after = (round(before[0] * size / shorter), round(before[1] * size / shorter))
        if after != before or image.format != "JPEG":
            out = BytesIO()
            reduced = to_rgb(image).resize(after, Image.Resampling.LANCZOS)
            turned = Image.Exif()
            turned[ExifTags.Base.Orientation] = find_orientation(memoryview(data), lambda _: image)
            is_turned = turned[ExifTags.Base.Orientation] != 1
            reduced.save(out, "JPEG", quality=95, exif=turned if is_turned else b"")
            data = out.getvalue()
    text = json.dumps(exif)
    return {
        "width": after[0],
        "height": after[1],
        "original_width": before[0],
        "original_height": before[1],
        "exif": text if len(text) <= _EXIF else "",
        "jpg": data,
    }
