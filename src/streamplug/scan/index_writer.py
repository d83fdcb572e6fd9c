"""Writing of an index.json beside data files without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.errors import ConfigError, OutputExistsError
from streamplug.index import INDEX_NAME, format_index, parse_index
from streamplug.interfaces import Format, Storage
from streamplug.plugin.location import local_path, open_storage
from streamplug.plugin.registry import make
from streamplug.scan.glob import parse_locations
from streamplug.scan.listing import file_suffixes_of, is_data_file, split_compression
from streamplug.scan.scan_cache import ScanCache
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.tempdir import TemporaryDirectory

_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Summary:
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
) -> Summary:
    """Scan data files and write an index.json beside them, which makes them a data set.

    Args:
        location: URL or path of their directory, or of the files, with ``*`` and ``{…}``.
        format: Format of the files.
        storage_options: Options of the storage, which must be writable.
        exist_ok: Whether to replace an existing index.json.
        report: Called with progress messages.

    Raises:
        OutputExistsError: If there is an index.json and not `exist_ok`.
    """
    format_: Format = make("format", format)
    endings = file_suffixes_of(format_)
    files = parse_locations(location, lambda name: is_data_file(name, format_))
    storage, near = open_storage(files.root, storage_options), local_path(files.root)
    if storage.exists(INDEX_NAME) and not exist_ok:
        raise OutputExistsError(
            f"{storage.url_of(INDEX_NAME)} is there already; pass exist_ok=True (--force) to replace it"
        )
    with TemporaryDirectory() as folder:
        deriver = ScanCache(storage, near, format, _RETRIES)
        made = deriver.get_index(
            files,
            folder,
            lambda done, total: report(f"{done} of {total} files looked through"),
        )
        entries = json.loads(made.data)["shards"]
        written: set[str] = set()
        for entry in entries:
            _rename(entry, endings)
            for role in _made(entry):
                name = entry[f"raw_{role}"]["basename"]
                target = f"{entry['raw_data']['basename']}.{role}"
                if target not in written:  # files may be listed twice
                    report(f"writing {storage.url_of(target)}")
                    _write(storage, target, made.folder / name)
                    written.add(target)
                entry[f"raw_{role}"]["basename"] = target
        data = format_index(entries, {})
        index = parse_index(data, storage.url_of(INDEX_NAME))
        call_with_retries(lambda: storage.write(INDEX_NAME, data), _RETRIES)
    columns = {column.name: column.spec for s in index.schemas for column in s.columns}
    return Summary(storage.url_of(INDEX_NAME), len(index), index.size, columns)


def _rename(entry: Mapping[str, Any], endings: Sequence[str]) -> None:
    """Set an entry's raw basename to the stored one without the compression suffix."""
    if entry["zip_data"] is not None:
        found = split_compression(entry["zip_data"]["basename"], endings)
        if found is None:
            raise ConfigError(f"{entry['zip_data']['basename']} is no data file")
        entry["raw_data"]["basename"] = found[0]


def _made(entry: Mapping[str, Any]) -> list[str]:
    return [key[4:] for key in entry if key.startswith("raw_") and key != "raw_data"]


def _write(storage: Storage, name: str, path: Path) -> None:
    call_with_retries(lambda: storage.upload(path, name), _RETRIES)
