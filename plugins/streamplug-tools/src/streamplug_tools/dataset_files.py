"""The stored files of a data set that has an index of streamplug."""

from __future__ import annotations

from functools import partial

from streamplug.errors import ConfigError, InvalidIndexError, NotFound
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.source import list_manifests
from streamplug.stream import Stream
from streamplug.transfer import DOWNLOAD_TIMEOUT_SECONDS, TimeoutStorage, call_with_retries
from streamplug.types import FileInfo
from streamplug_tools.format_detection import detect_format

_TABLES = {"_delta_log/": "Delta table", "metadata/": "Iceberg table"}
"""Folders by which tables are recognized where there is no index.json."""


def find_reference(storage: Storage) -> str:
    """Return what a location is whose files are shared or elsewhere: a view or a table; empty for neither."""
    for manifest, name in list_manifests().items():
        if call_with_retries(partial(storage.exists, manifest)):
            return name
    if call_with_retries(partial(storage.exists, INDEX_NAME)):
        return ""
    kinds = (kind for folder, kind in _TABLES.items() if any(storage.list(folder)))
    return next(kinds, "")


def read_own_index(stream: Stream) -> tuple[Index, bytes]:
    """Return the index of a data set, and the content of its index.json.

    Raises:
        ConfigError: If the location has a view, a table, or files without an index.json of streamplug.
        NotFound: If it has none of them.
        InvalidIndexError: If the index is damaged.
    """
    storage, url = stream.storage, stream.url
    source = (
        storage if stream.location.in_place else TimeoutStorage(storage, DOWNLOAD_TIMEOUT_SECONDS)
    )
    if kind := find_reference(source):
        raise ConfigError(
            f"{url} is a {kind}, whose files are shared by versions or in other places: write its samples "
            "with streamplug convert, or name a data set with an index.json"
        )
    try:
        data = call_with_retries(lambda: source.read(INDEX_NAME))
    except NotFound:
        detected = detect_format(stream)
        what = "" if detected is None else f", but files of the format {detected.name}"
        raise NotFound(
            f"{storage.url_of(INDEX_NAME)} does not exist: there is no data set{what}; check the location "
            "and split=, write an index.json with streamplug index scan, or the samples with streamplug "
            "convert"
        ) from None
    try:
        return parse_index(data, storage.url_of(INDEX_NAME)), data
    except InvalidIndexError as error:
        detected = detect_format(stream)
        if detected is None:
            raise
        raise ConfigError(
            f"{storage.url_of(INDEX_NAME)} is an index of the format {detected.name}, not of streamplug: "
            "write the samples with streamplug convert"
        ) from error


def stored_files(index: Index) -> list[FileInfo]:
    """Return the files of an index as they are stored: compressed, where they are.

    Raises:
        ConfigError: If its shards are made of further files, which it does not name.
    """
    for schema in index.schemas:
        if schema.format.is_composed:
            raise ConfigError(
                f"{index.where}: its shards are made of many files, which it does not name; write the "
                "samples with streamplug convert"
            )
    files = {file.basename: file for file in index.value_sizes}
    for raw, compressed in index.file_tables:
        for shard in range(len(index)):
            file = (compressed and compressed.file(shard)) or raw.file(shard)
            if file is not None:
                files[file.basename] = file
    return list(files.values())
