"""Makes the companion of a data set's index.json, and checks one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.errors import InvalidIndexError
from streamplug.index import (
    COMPANION_NAME,
    INDEX_NAME,
    Companion,
    Index,
    parse_index,
    source_of,
    write_companion,
)
from streamplug.index.mapped import MappedFile
from streamplug.interfaces import Storage
from streamplug.plugin.location import local_path, open_storage
from streamplug.transfer.disk_errors import local_errors, partial_file
from streamplug.transfer.retry import retrying
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Buffer

_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Summary:
    """What a companion holds.

    Attributes:
        url: Where it is.
        bytes: Its size.
        index_bytes: The size of its index.json.
        shards: Number of shards.
        samples: Number of samples.
        digest: Digest of the shards' sizes, which a saved state names as well.
    """

    url: str
    bytes: int
    index_bytes: int
    shards: int
    samples: int
    digest: str


def build_companion(
    location: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Summary:
    """Make the companion of a data set's index.json, beside it.

    Args:
        location: URL or path of the data set.
        storage_options: Settings of its storage.
        report: Told what is being done.

    Raises:
        StorageError: If the index.json cannot be had, or the companion not be written.
        InvalidIndexError: If the index.json cannot be used.
    """
    storage, near = open_storage(location, storage_options), local_path(location)
    where = storage.url_of(INDEX_NAME)
    with _files(storage, near, (INDEX_NAME,), report) as folder:
        report(f"reading {where}")
        data = _content(folder / INDEX_NAME)
        source, index = source_of(data), parse_index(data, where)
        target = folder / COMPANION_NAME
        with local_errors(target), partial_file(target) as part:
            write_companion(index, source, part, lambda column: report(f"writing {column}"))
        size = target.stat().st_size
        if near is None:
            report(f"uploading {storage.url_of(COMPANION_NAME)}")
            retrying(lambda: storage.upload(target, COMPANION_NAME), _RETRIES)
    return _summary(storage, index, size, source.bytes)


def check_companion(
    location: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Summary:
    """Check that a companion is whole, and that of the index.json beside it, reading all of both.

    Args:
        location: URL or path of the data set.
        storage_options: Settings of its storage.
        report: Told what is being done.

    Raises:
        StorageError: If one of the two cannot be had.
        InvalidIndexError: If the companion is damaged, or that of another index.json.
    """
    storage, near = open_storage(location, storage_options), local_path(location)
    where = storage.url_of(COMPANION_NAME)
    with _files(storage, near, (INDEX_NAME, COMPANION_NAME), report) as folder:
        report(f"checking {where}")
        companion = Companion(folder / COMPANION_NAME, where)
        companion.verify()
        if source_of(_content(folder / INDEX_NAME)) != companion.source:
            raise InvalidIndexError(
                f"{where} was made from another index.json; make it again with streamplug index build"
            )
        size = (folder / COMPANION_NAME).stat().st_size
        return _summary(storage, companion.index, size, companion.source.bytes)


@contextmanager
def _files(
    storage: Storage, near: Path | None, names: tuple[str, ...], report: Callable[[str], None]
) -> Iterator[Path]:
    """Yield a directory with files of a data set: its own, or one for temporary files."""
    for name in names:
        storage.stat(name)  # says so if it does not exist
    if near is not None:
        yield near
        return
    with TemporaryDirectory() as folder:
        for name in names:
            report(f"downloading {storage.url_of(name)}")
            _download(storage, name, folder / name)
        yield folder


def _download(storage: Storage, name: str, path: Path) -> None:
    retrying(lambda: storage.download(name, path), _RETRIES)


def _content(path: Path) -> Buffer:
    """Return the bytes of a file, mapped: it may be longer than there is memory."""
    return MappedFile(path).data if path.stat().st_size else b""


def _summary(storage: Storage, index: Index, size: int, index_bytes: int) -> Summary:
    return Summary(
        storage.url_of(COMPANION_NAME), size, index_bytes, len(index), index.size, index.digest
    )
