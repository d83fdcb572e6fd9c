"""Import of index.json files of other libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import xxhash

from streamplug.cache import INDEX_STALL_SECONDS, stage_cache_file
from streamplug.errors import InvalidIndexError, NotFound, StreamplugError
from streamplug.index import INDEX_NAME, format_index
from streamplug.interfaces import Format, Storage
from streamplug.transfer import STATE_DIR, cache_lock, call_with_retries, map_disk_errors
from streamplug_files.file_lists import FileListFoundError
from streamplug_files.format import FileListFormat, IndexImportFormat
from streamplug_files.listing import stat_files
from streamplug_files.scan_source import DatasetFiles

Translate = Callable[[bytes], bytes]
"""Translates an index.json to streamplug's."""


def make_index_importer(format_: Format, storage: Storage, retries: int) -> Translate | None:
    """Return a function that imports index.json files; None if the format supports no other than ours."""
    if not isinstance(format_, (FileListFormat, IndexImportFormat)):
        return None

    def translate(data: bytes) -> bytes:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):  # parse_index reports it
            return data
        if isinstance(document, dict) and "shards" in document:
            return data
        where = storage.url_of(INDEX_NAME)
        if isinstance(format_, FileListFormat):
            with _name_in_errors(where):
                files = format_.parse_file_list(INDEX_NAME, data)
            if files is not None:
                raise FileListFoundError(f"{where} is a list of files")
        if not isinstance(format_, IndexImportFormat):
            return data
        with _name_in_errors(where):
            entries = format_.import_index(document, _Files(storage, retries))
        return data if entries is None else format_index(entries, {})

    return translate


@contextmanager
def _name_in_errors(where: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:  # not as NotFound, which would mean a missing index.json
        raise InvalidIndexError(f"{where} names a file that does not exist: {error}") from error
    except StreamplugError as error:
        raise type(error)(f"{where}: {error}") from error.__cause__
    except Exception as error:  # a format may fail in any way on a damaged one
        raise InvalidIndexError(
            f"{where} is damaged: {type(error).__name__}: {error!s:.200}; write or copy it again"
        ) from error


class _Files(DatasetFiles):
    def __init__(self, storage: Storage, retries: int) -> None:
        self._storage, self._retries = storage, retries

    def sizes(self, names: Sequence[str]) -> Mapping[str, int]:
        infos = stat_files(self._storage, names, self._retries)
        return {name: info.size for name, info in infos.items()}

    def read(self, name: str, start: int, stop: int) -> bytes:
        return call_with_retries(lambda: self._storage.read_range(name, start, stop), self._retries)


def save_imported_index(directory: Path, data: bytes, translated: bytes) -> None:
    """Save the imported form of an index.json for offline use; replace that of another version."""
    path = _translated(directory, data)
    with map_disk_errors(directory):
        if _has_content(path, translated):
            return
        # Without the lock, another process takes the staging file for that of a dead one, and removes it.
        with cache_lock(directory, INDEX_NAME, INDEX_STALL_SECONDS):
            if not _has_content(path, translated):
                with stage_cache_file(directory, INDEX_NAME, path) as part:
                    part.write_bytes(translated)


def _has_content(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False


def load_imported_index(directory: Path, data: bytes) -> bytes:
    """Return the saved import of an index.json; `data` itself if there is none."""
    try:
        return _translated(directory, data).read_bytes()
    except FileNotFoundError:
        return data


def _translated(directory: Path, data: bytes) -> Path:
    return directory / STATE_DIR / "translated" / xxhash.xxh3_128_hexdigest(data)
