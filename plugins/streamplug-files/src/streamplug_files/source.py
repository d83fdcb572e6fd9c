"""The source of data sets that may have no index.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from streamplug.cache import claim_directory, read_local_copy, source_cache_dir
from streamplug.errors import ConfigError, NotFound
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Format, Storage, public_urls
from streamplug.plugin import join, local_path, make, open_storage
from streamplug.source import IndexSource, StreamLocation, keeps_index
from streamplug.transfer import TimeoutStorage
from streamplug_files.file_lists import FileListFoundError
from streamplug_files.format import MultiFileFormat, ScannableFormat
from streamplug_files.glob import FileSet
from streamplug_files.index_import import (
    load_imported_index,
    make_index_importer,
    save_imported_index,
)
from streamplug_files.listing import find_locations
from streamplug_files.progress_bar import ProgressBar
from streamplug_files.scan_cache import ScanCache, scan_cache_dir

if TYPE_CHECKING:
    from streamplug.stream import Stream


@dataclass(frozen=True)
class FilesLocation(StreamLocation):
    """Location of files; `selection` is their key in the record of a cache directory."""

    files: FileSet = field(kw_only=True)
    selection: str = field(kw_only=True)


class FilesSource(IndexSource):
    """``files``: an index.json, also of another library, or else files, which are scanned once."""

    def locate(self, stream: Stream) -> FilesLocation:
        """Return the location of a directory, of files or of patterns of files.

        Raises:
            ConfigError: If the stream has no format of files, they have no directory in common, or they have
                a split.
        """
        format_ = self._format(stream)
        location = (stream.local if stream.remote is None else stream.remote) or ""
        files = find_locations(location, format_)
        parent = files.root
        if stream.split is not None:
            if not files.whole:
                raise ConfigError(
                    f"split={stream.split!r} with remote={public_urls(location)!r:.200}: a split is of a "
                    "directory; name it in remote=, and give split= to other streams only"
                )
            files = replace(files, root=join(files.root, stream.split))
        found = FilesLocation.of(
            stream,
            parent,
            # Of the same files, formats with other options make other indexes.
            parts=() if files.whole else (stream.format or "", *files.parts),
            files=files,
            selection=json.dumps([stream.format, *files.parts]),
        )
        if files.queries:
            found = replace(
                found, storage_options={**(stream.storage_options or {}), "queries": files.queries}
            )
        # Files that local= names are the data set itself, and no cache of it.
        is_data_set = stream.local is not None and stream.remote in (None, stream.local)
        return replace(found, local=parent) if is_data_set else found

    def find_index(
        self, stream: Stream, storage: Storage, retries: int
    ) -> tuple[Index, Path | None]:
        """Return the index.json if the data set is a directory that has one, else that of a scan."""
        files = cast("FilesLocation", stream.location).files
        if files.whole:
            try:
                return self._import_index(stream, storage, retries), None
            except FileListFoundError:
                files = FileSet(files.root, (INDEX_NAME,))
            except NotFound:
                if not isinstance(self._format(stream), (ScannableFormat, MultiFileFormat)):
                    raise
        return self._scan(stream, storage, files, retries)

    def find_copy(self, stream: Stream, storage: Storage) -> tuple[Index, Path | None] | None:
        """Return the index of a scan or an index.json from the cache of an unreachable data set."""
        location = cast("FilesLocation", stream.location)
        directory, selections = location.directory, {location.selection}
        copy = read_local_copy(
            directory, storage.url, {*selections, None} if location.files.whole else selections
        )
        if copy is None:
            return None
        index = copy.parse(load_imported_index(directory, copy.data))
        is_scanned = copy.identity.get("files") is not None
        return index, scan_cache_dir(directory, storage.url) if is_scanned else None

    def _format(self, stream: Stream) -> Format:
        if stream.format in (None, "files"):
            raise ConfigError("format='files': name the format of the files, such as 'parquet'")
        return cast("Format", make("format", stream.format))

    def _import_index(self, stream: Stream, storage: Storage, retries: int) -> Index:
        """Return the index in an index.json, which may be that of another library."""
        importer = make_index_importer(self._format(stream), storage, retries)
        if importer is None:
            return self.read_index(stream, storage, retries)
        imported: list[tuple[bytes, bytes]] = []

        def parse(data: bytes, where: str) -> Index:
            imported.append((data, importer(data)))
            return parse_index(imported[-1][1], where)

        index = self.read_index(stream, storage, retries, parse)
        data, translated = imported[-1]
        if translated is not data and keeps_index(stream):
            save_imported_index(stream.location.directory, data, translated)
        return index

    def _scan(
        self, stream: Stream, storage: Storage, files: FileSet, retries: int
    ) -> tuple[Index, Path]:
        location = cast("FilesLocation", stream.location)
        directory, in_place = location.directory, location.in_place
        base = source_cache_dir(storage.url) if in_place else directory

        def open_other(url: str) -> Storage:
            other = open_storage(url, stream.storage_options)
            return other if in_place else TimeoutStorage(other, stream.timeout)

        with ProgressBar(f"scanning {storage.url}") as progress:
            scan = ScanCache(
                storage,
                local_path(files.root),
                stream.format or "",
                retries,
                open_storage=open_other,
            )
            result = scan.get_index(files, base, progress.update)
        if keeps_index(stream):
            versions = f"{type(location.storage).__name__} {result.versions}"
            claim_directory(
                directory,
                storage.url,
                result.data,
                location.selection,
                versions,
                endpoint=location.storage.endpoint,
            )
        index = parse_index(result.data, storage.url)
        index.versions = result.versions
        return index, result.folder
