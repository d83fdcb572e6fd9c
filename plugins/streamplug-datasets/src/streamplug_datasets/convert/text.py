"""Reads lines of text and of JSON from files, compressed or not."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import zstandard
from streamplug_zstandard.frames import check_frames

from streamplug.errors import DataError

_WINDOW = 1 << 31
"""The largest that files compressed with ``zstd --long`` ask for."""
_LINE_LIMIT = 1 << 30
"""Bytes of a line. A small compressed file may have a line that takes all memory."""


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of each line.

    Raises:
        DataError: If the file is damaged, or a line is longer than 1 GiB.
    """
    number = 0
    try:
        with _opened(path) as stream:
            for number, line in enumerate(iter(partial(stream.readline, _LINE_LIMIT + 1), b""), 1):
                if len(line) > _LINE_LIMIT:
                    raise DataError(f"line {number} is longer than {_LINE_LIMIT} bytes")
                yield number, line
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # decompressors raise what they run into
        raise DataError(
            f"{path}: cannot be read behind line {number}: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if path.suffix == ".gz":
            with gzip.open(file) as stream:
                yield stream  # type: ignore[misc]  # a GzipFile reads bytes
        elif path.suffix == ".zst":
            check_frames(file)  # the library takes a file that was cut short for whole
            decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
            with decompressor.stream_reader(file, read_across_frames=True) as raw:
                yield io.BufferedReader(raw, 1 << 20)
        else:
            yield file


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text, without white space around them.

    Raises:
        DataError: If it is damaged, or not UTF-8.
    """
    for number, line in lines(path):
        try:
            yield line.decode().strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: line {number}: {error}") from error


def json_lines(path: Path, fields: dict[str, type]) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line.

    Args:
        path: The file.
        fields: What each has, and no more, with the type of the values.

    Raises:
        DataError: If a line is no such object.
    """
    for number, line in lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number}: {error}") from error
        if not isinstance(record, dict) or record.keys() != fields.keys():
            names = sorted(record) if isinstance(record, dict) else type(record).__name__
            raise DataError(f"{path}: line {number}: expected {sorted(fields)}, got {names!r:.200}")
        for name, kind in fields.items():
            if not isinstance(record[name], kind):
                raise DataError(
                    f"{path}: line {number}: {name!r} is a {type(record[name]).__name__}"
                )
        yield record
