"""Writing of an index.json beside data files without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streamplug_files import (
    ScanCache,
    file_suffixes_of,
    find_locations,
    split_compression,
)

from streamplug.errors import ConfigError, OutputExistsError
from streamplug.index import INDEX_NAME, format_index, parse_index
from streamplug.interfaces import Format, Storage
from streamplug.plugin import local_path, make, open_storage
from streamplug.transfer import TemporaryDirectory, call_with_retries

_SCAN_RETRIES = 2


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """URL of a written index.json, its numbers of shards and samples, and the encoding of each column."""

    url: str
    shards: int
    samples: int
    columns: Mapping[str, str]


def scan_index(
    location: str,
    format: str,  # noqa: A002 - the word that users know
    *,
    storage_options: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> ScanSummary:
    """Scan data files and write an index.json beside them, which makes them a data set.

    Args:
        location: URL or path of their directory, or of the files, with ``*`` and ``{…}``.
        format: Format of the files.
        storage_options: Options of the storage, which must be writable.
        exist_ok: Whether to replace an existing index.json and the files that it needs beside the data.
        report: Called with progress messages.

    Raises:
        OutputExistsError: If there is an index.json or such a file and not `exist_ok`.
    """
    format_: Format = make("format", format)
    files = find_locations(location, format_)
    storage = open_storage(files.root, storage_options)
    if storage.exists(INDEX_NAME) and not exist_ok:
        raise OutputExistsError(
            f"{storage.url_of(INDEX_NAME)} exists; pass exist_ok=True (--force) to replace it"
        )
    with TemporaryDirectory() as folder:
        cache = ScanCache(
            storage,
            local_path(files.root),
            format,
            _SCAN_RETRIES,
            open_storage=partial(open_storage, options=storage_options),
        )
        scanned = cache.get_index(
            files, folder, lambda done, total: report(f"{done} of {total} files scanned")
        )
        entries = json.loads(scanned.data)["shards"]
        uploads: dict[str, Path] = {}  # files may be listed twice
        for entry in entries:
            _rename(entry, file_suffixes_of(format_))
            for key in entry.keys() - {"raw_data"}:
                if key.startswith("raw_"):
                    target = f"{entry['raw_data']['basename']}.{key.removeprefix('raw_')}"
                    uploads[target] = scanned.folder / entry[key]["basename"]
                    entry[key]["basename"] = target
        if not exist_ok:
            _check_unused(storage, uploads)
        for target, path in uploads.items():
            report(f"writing {storage.url_of(target)}")
            call_with_retries(partial(storage.upload, path, target))
        data = format_index(entries, {})
        index = parse_index(data, storage.url_of(INDEX_NAME))
        call_with_retries(lambda: storage.write(INDEX_NAME, data))
    columns = {column.name: column.spec for s in index.schemas for column in s.columns}
    return ScanSummary(storage.url_of(INDEX_NAME), len(index), index.size, columns)


def _check_unused(storage: Storage, uploads: Mapping[str, Path]) -> None:
    """Raise OutputExistsError if a file would be replaced that an earlier scan cannot have written."""
    for target, path in uploads.items():
        if storage.exists(target) and storage.read(target) != path.read_bytes():
            raise OutputExistsError(
                f"{storage.url_of(target)} exists; move it, or pass exist_ok=True (--force) to replace it"
            )


def _rename(entry: Mapping[str, Any], endings: Sequence[str]) -> None:
    """Set an entry's raw basename to the stored one without the compression suffix."""
    if entry["zip_data"] is not None:
        names = split_compression(entry["zip_data"]["basename"], endings)
        if names is None:
            raise ConfigError(f"{entry['zip_data']['basename']} is no data file")
        entry["raw_data"]["basename"] = names[0]
