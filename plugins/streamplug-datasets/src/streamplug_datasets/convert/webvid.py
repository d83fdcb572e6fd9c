"""Conversion of WebVid, a table of videos and their captions; the videos are downloaded."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from streamplug.config import parse_bytes
from streamplug.errors import DataError
from streamplug.plugin import open_storage
from streamplug_datasets.convert import crawl as crawling
from streamplug_datasets.convert.crawl import Crawl, Failed, fetch_all
from streamplug_datasets.convert.failure_report import FailureReport
from streamplug_datasets.convert.run import Split
from streamplug_datasets.options import converter

_ABOUT = {
    "videoid": "str",
    "name": "str",
    "page_idx": "str",
    "page_dir": "str",
    "duration": "int",
    "contentUrl": "str",
}
INSIDE = {**_ABOUT, "content": "bytes"}
OUTSIDE = {**_ABOUT, "content_path": "str"}
_NEEDED = {"videoid", "name", "page_dir", "duration", "contentUrl"}
_DURATION = re.compile(r"PT(\d\d)H(\d\d)M(\d\d)S")
TABLE = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)


@converter(size_limit="64mb", source=TABLE, whole=False)
@click.option(
    "--videos",
    help="Path or URL for the videos as files; samples then have their paths. Without, they have the videos.",
)
@click.option(
    "--subsets",
    default="",
    help="Words, with commas between: for each, a data set of the videos whose text has it.",
)
@click.option("--limit", type=click.IntRange(1), help="Only the first rows of the table.")
@click.option(
    "--part", default=500, type=click.IntRange(1), show_default=True, help="Rows of a part."
)
@click.option("--max-bytes", default="256mb", show_default=True, help="Of a video.")
@crawling.options
@click.pass_context
def command(
    context: click.Context,
    root: Path,
    *,
    videos: str | None,
    subsets: str,
    limit: int | None,
    part: int,
    max_bytes: str,
    threads: int,
    timeout: float,
    deadline: float,
    retries: int,
    max_failed: float,
    allow_private: bool,
) -> list[Split]:
    """Convert WebVid: fetch the videos of a table.

    --in is a table such as results_2M_train.csv, with the columns videoid, contentUrl, duration, page_dir
    and name. Failed downloads are left out, counted by kind, and listed in the folder failures of
    --out. A run that was killed goes on where it stood.
    """
    crawling.check_installed()
    out = context.params["out"].rstrip("/")
    size = parse_bytes(max_bytes, "max_bytes")
    settings = Crawl(threads, timeout, deadline, retries, size, allow_private)
    starts = _starts(root, part, limit)
    planned = []
    for word in subsets.split(","):
        place = f"{out}/{word}".rstrip("/")
        # How to fetch is no part of what a part is: another run may do it otherwise.
        make = partial(
            samples,
            crawl=settings,
            max_failed=max_failed,
            failures=f"{place}/failures",
        )
        common: dict[str, Any] = {"csv": str(root), "word": word}
        if videos:  # where another run must not leave its own
            common["videos"] = f"{videos.rstrip('/')}/{word}".rstrip("/")
        parts = [
            {**common, "number": number, "start": start, "rows": rows}
            for number, (start, rows) in enumerate(starts)
        ]
        columns = OUTSIDE if videos else INSIDE
        planned.append(Split(word, columns, make, parts, failures=f"{place}/failures"))
    return planned


def _starts(path: Path, rows_per_part: int, limit: int | None) -> list[tuple[int, int]]:
    """Return where in the table each part begins, and how many rows it has."""
    starts: list[tuple[int, int]] = []
    table = _Table(path)
    start, count, whole = table.place, 0, 0
    for row in islice(table.rows(), limit):
        _checked(row, f"{path}: row {whole + count + 1}")
        count += 1
        if count == rows_per_part:
            starts.append((start, count))
            start, count, whole = table.place, 0, whole + count
    if count:
        starts.append((start, count))
    if not starts:
        raise DataError(f"{path}: a table without rows")
    return starts


class _Table:
    """Reads a table from any place between two rows.

    Attributes:
        place: Byte of the file behind the row that was read last.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path, self.place = path, 0
        self._names = next(self._read(), [])
        if lacking := sorted(_NEEDED - set(self._names)):
            raise DataError(f"{path}: lacks the columns {', '.join(lacking)}")
        self.place = start or self.place

    def rows(self) -> Iterator[dict[str, str]]:
        """Yield the rows from the place on."""
        for number, values in enumerate(self._read(), 1):
            if len(values) != len(self._names):
                raise DataError(
                    f"{self._path}: row {number} from byte {self.place}: {len(values)} values for "
                    f"{len(self._names)} columns"
                )
            yield dict(zip(self._names, values))

    def _read(self) -> Iterator[list[str]]:
        # A quoted value may go on in the next line: the reader asks for as many lines as a row has.
        try:
            yield from csv.reader(self._lines(), strict=True)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{self._path}: before byte {self.place}: {error}") from error

    def _lines(self) -> Iterator[str]:
        with self._path.open("rb") as stream:
            stream.seek(self.place)
            for line in stream:
                self.place += len(line)
                yield line.decode()


def _checked(row: dict[str, str], where: str) -> int:
    """Return the seconds that a video takes."""
    match = _DURATION.fullmatch(row["duration"])
    if match is None:
        raise DataError(f"{where}: duration is {row['duration']!r:.40}, not like PT00H00M30S")
    hours, minutes, seconds = map(int, match.groups())
    return hours * 3600 + minutes * 60 + seconds


def samples(
    part: dict[str, Any], *, crawl: Crawl, max_failed: float, failures: str
) -> Iterator[dict[str, Any]]:
    """Yield the samples of a part, as far as their videos can be had."""
    table = _Table(Path(part["csv"]), part["start"])
    rows = [row for row in islice(table.rows(), part["rows"]) if part["word"] in row["name"]]
    storage = open_storage(part["videos"]) if "videos" in part else None
    lost = FailureReport()
    with closing(fetch_all((row["contentUrl"] for row in rows), crawl)) as fetched:
        for number, (row, video) in enumerate(zip(rows, fetched)):
            if isinstance(video, Failed):
                about = {"videoid": row["videoid"], "url": row["contentUrl"]}
                lost.add(video.kind, **about, message=str(video))
                continue
            sample: dict[str, Any] = {name: row.get(name, "") for name in _ABOUT}
            sample["duration"] = _checked(row, part["csv"])
            if storage is None:
                sample["content"] = video
            else:
                sample["content_path"] = f"{part['number']:05}/{number:05}.mp4"
                storage.write(sample["content_path"], video)
            yield sample
    lost.write(failures, part["number"], len(rows), max_failed)
