"""Cache of scans: the index of data files without one.

Results are stored per file by its name, size and version, so that only new and changed files are scanned
again.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import xxhash

from streamplug.cache import SCAN_INDEX_SUFFIX, source_cache_dir, stage_cache_file
from streamplug.errors import (
    ConfigError,
    DataError,
    InvalidIndexError,
    StorageError,
    prefix_errors,
)
from streamplug.index import NAME_RULES, format_index, validate_basename
from streamplug.interfaces import Format, Storage
from streamplug.plugin import make, open_storage
from streamplug.plugin_kit import sync_directory, sync_files
from streamplug.transfer import STATE_DIR, cache_lock, map_disk_errors, map_threads
from streamplug_files.file_lists import FileListClaims, resolve_file_list
from streamplug_files.format import MultiFileFormat, ScannableFormat
from streamplug_files.glob import FileSet
from streamplug_files.listing import DataFile, list_data_files, prefer_names
from streamplug_files.manifest import MANIFEST_ROLE, MULTIFILE_PREFIX
from streamplug_files.multifile_shards import FileTree, group_files, list_tree
from streamplug_files.scanner import scan_file
from streamplug_files.table_check import OpenStorage, check_tables_above

_LOCK_NAME = "scan"
_VERSION = 5
_MAX_SCANS_IN_FLIGHT = 8
_LOG = logging.getLogger("streamplug.scan")

Report = Callable[[int, int], None]  # called with the number of scanned files and the total
_Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScannedIndex:
    """Content of the index.json made by a scan, and the folder of the files written with it.

    `versions` is a digest of the names, sizes and versions of the data files.
    """

    data: bytes
    folder: Path
    versions: str


def scan_cache_dir(base: Path, url: str) -> Path:
    """Return the directory of a scan's files: in the cache, or the user's cache if that is read-only."""
    own = base / STATE_DIR / "scan"
    return own if own.is_dir() else source_cache_dir(url) / STATE_DIR / "scan"


def add_digest(content: bytes) -> bytes:
    """Return content after a line with its digest."""
    return xxhash.xxh3_64_hexdigest(content).encode() + b"\n" + content


def read_with_digest(path: Path) -> bytes | None:
    """Return the content of a file written with `add_digest`; None if it cannot be read or is damaged."""
    try:
        digest, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if digest == xxhash.xxh3_64_hexdigest(content).encode() else None


class _ScanFolder:
    """The folder of the files that scans write: in a cache or, if that is read-only, the user's cache."""

    def __init__(self, base: Path, url: str) -> None:
        """Create the folder in `base`, the cache of the data set at `url`."""
        self.base, self.path = base, base / STATE_DIR / "scan"
        with suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                return
        self.base = source_cache_dir(url)
        self.path = self.base / STATE_DIR / "scan"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"neither {base} nor {self.base} can be written to ({error.strerror}), so the scan of {url} "
                "cannot be cached; give local=, or write an index.json with streamplug index scan"
            ) from error

    def write(self, name: str, content: bytes, *, durable: bool = False) -> _Entry:
        """Write a file, and return its entry for the index."""
        with stage_cache_file(self.base, _LOCK_NAME, self.path / name, durable=durable) as part:
            part.write_bytes(content)
        digest = xxhash.xxh3_64_hexdigest(content)
        return {"basename": name, "bytes": len(content), "hashes": {"xxh3_64": digest}}

    def write_index(self, name: str, entries: Sequence[_Entry]) -> bytes:
        """Write an index, when the files that it names are on the disk; return its content."""
        names = {file["basename"] for entry in entries for file in _written_files(entry)}
        paths = [self.path / name for name in names]
        sync_files(paths)
        for folder in {path.parent for path in paths}:
            sync_directory(folder)
        data = format_index(entries, {})
        self.write(name, add_digest(data), durable=True)
        return data

    def read_result(self, key: str) -> _Entry | None:
        """Return the stored result of a scanned file; None if it is missing or incomplete."""
        content = read_with_digest(self.path / f"{key}.json")
        if content is None:
            return None
        result: _Entry = json.loads(content)
        try:
            for file in _written_files(result["own"]):
                written = (self.path / file["basename"]).read_bytes()
                if xxhash.xxh3_64_hexdigest(written) != file["hashes"]["xxh3_64"]:
                    return None
        except OSError:
            return None
        return result


_Listing = tuple[str, str, Callable[[_ScanFolder], list[_Entry]]]
"""Cache key of the index of some files, digest of their versions, and the function that makes its entries."""


def _written_files(entry: _Entry) -> list[_Entry]:
    """Return the files in an entry that a scan wrote."""
    return [file for role, file in entry.items() if role.startswith("raw_") and role != "raw_data"]


class ScanCache:
    """Makes the index of data files, or returns the cached one."""

    def __init__(
        self,
        storage: Storage,
        directory: Path | None,
        spec: str,
        retries: int,
        *,
        open_storage: OpenStorage = open_storage,
    ) -> None:
        """Scan files of format `spec`.

        Args:
            storage: The storage of the files.
            directory: That of `storage`, if it is local.
            spec: The format.
            retries: Retries of each request.
            open_storage: Returns the storage of directories above, to find out whether they are tables.
        """
        self._storage, self._directory, self._retries = storage, directory, retries
        self._spec, self._open_storage = spec, open_storage
        self._format: Format = make("format", spec)

    def get_index(
        self, files: FileSet, base: Path, report: Report = lambda *_: None
    ) -> ScannedIndex:
        """Return the index of a file set, cached in `base` or, if not writable, in the user's cache."""
        files = prefer_names(self._storage, files, self._retries)
        if isinstance(self._format, MultiFileFormat):
            key, versions, make_entries = self._list_tree(files, self._format)
        else:
            key, versions, make_entries = self._list_data_files(files, report)
        folder = _ScanFolder(base, self._storage.url)
        path = folder.path / f"{key}{SCAN_INDEX_SUFFIX}"
        with map_disk_errors(folder.path):
            data = read_with_digest(path)
            if data is None:
                with cache_lock(folder.base, _LOCK_NAME):
                    data = read_with_digest(path)  # another process may have made it meanwhile
                    if data is None:
                        data = folder.write_index(path.name, make_entries(folder))
            return ScannedIndex(data, folder.path, versions)

    def _list_tree(self, files: FileSet, format_: MultiFileFormat) -> _Listing:
        tree = list_tree(self._storage, files, self._retries)
        with prefix_errors(self._storage.url, DataError):
            format_.check_empty_directories(tree.empty_directories)
        key = _digest([_VERSION, self._spec, self._storage.url, tree.digest])
        return key, tree.digest, partial(self._group, tree, format_, key)

    def _list_data_files(self, files: FileSet, report: Report) -> _Listing:
        files, claims = resolve_file_list(self._storage, files, self._format, self._retries)
        data_files, hidden = list_data_files(self._storage, files, self._scannable(), self._retries)
        for file in data_files:
            claims.check_size(file, self._storage.url_of(file.stored.key))
        stored = [(file.stored.key, file.stored.size, file.stored.version) for file in data_files]
        keys = [_digest([_VERSION, self._spec, self._storage.url, *of_file]) for of_file in stored]

        def make_entries(folder: _ScanFolder) -> list[_Entry]:
            if hidden:
                example = {"": repr(hidden)}
                _warn(self._storage, "hidden files and directories are left out", example)
            table_files = self._scannable().table_files
            check_tables_above(files, table_files, self._open_storage, self._retries)
            return self._scan(data_files, keys, claims, report, folder)

        return _digest([*keys, *claims.cache_keys()]), _digest(stored), make_entries

    def _scannable(self) -> ScannableFormat:
        if not isinstance(self._format, ScannableFormat):
            raise ConfigError(
                f"{self._storage.url}: format {self._spec} cannot be read without an index.json; name a "
                "directory that has one"
            )
        return self._format

    def _group(
        self, tree: FileTree, format_: MultiFileFormat, key: str, folder: _ScanFolder
    ) -> list[_Entry]:
        """Return the index entries of multi-file shards, and write their manifests."""
        with prefix_errors(self._storage.url, DataError):
            selection = format_.select_files([file.key for file in tree.files])
        for note, example in selection.notes.items():
            _warn(self._storage, note, {"": example})
        entries = []
        for number, manifest in enumerate(group_files(tree.files, tree.repeat_files(selection))):
            basename = f"{MULTIFILE_PREFIX}{number:05d}"
            data = {"basename": basename, "bytes": int(manifest.sizes.sum()), "hashes": {}}
            content = manifest.pack()
            entries.append(
                {
                    **selection.entry,
                    "compression": None,
                    "raw_data": data,
                    f"raw_{MANIFEST_ROLE}": folder.write(
                        f"{key}/{number:05d}.{MANIFEST_ROLE}", content
                    ),
                    "samples": len(manifest),
                    "zip_data": None,
                    f"zip_{MANIFEST_ROLE}": None,
                }
            )
        return entries

    def _scan(
        self,
        files: Sequence[DataFile],
        keys: Sequence[str],
        claims: FileListClaims,
        report: Report,
        folder: _ScanFolder,
    ) -> list[_Entry]:
        """Scan each file once, and return an entry for each time it is listed."""
        for file in files:
            _check_name(file.stored.key, self._storage.url)
        by_key = dict(zip(keys, files))
        results = {key: folder.read_result(key) for key in by_key}
        missing = [key for key, result in results.items() if result is None]
        examples: defaultdict[str, dict[str, str]] = defaultdict(dict)  # note to file to example
        num_cached = len(by_key) - len(missing)
        report(num_cached, len(by_key))
        scans = map_threads(
            lambda key: self._scan_file(by_key[key], key, folder), missing, _MAX_SCANS_IN_FLIGHT
        )
        for done, (key, (result, notes)) in enumerate(zip(missing, scans), num_cached + 1):
            results[key] = result
            for note, example in notes.items():
                examples[note][by_key[key].stored.key] = example
            report(done, len(by_key))
        for note, by_file in examples.items():
            _warn(self._storage, note, by_file)
        entries = []
        for key, file in zip(keys, files):
            result = results[key] or {}
            claims.check_samples(
                file, result["own"]["samples"], self._storage.url_of(file.stored.key)
            )
            entries.append(result)
        return self._merge(entries, files)

    def _scan_file(
        self, file: DataFile, key: str, folder: _ScanFolder
    ) -> tuple[_Entry, Mapping[str, str]]:
        scanned, size = scan_file(
            self._scannable(), file, self._storage, self._directory, self._retries
        )
        entry: _Entry = {}
        for role, content in scanned.files.items():
            entry[f"raw_{role}"] = folder.write(f"{key}.{role}", content)
            entry[f"zip_{role}"] = None
        name = file.raw
        if self._directory is not None and file.compression is not None:
            # Decompressed into the scan folder, where `key.json` is the result of the scan.
            name = f"{key}.data.{self._format.suffix}"
        stored = {"basename": file.stored.key, "bytes": file.stored.size, "hashes": {}}
        result = {
            "shared": {**scanned.entry, "compression": file.compression},
            "own": {
                **entry,
                "raw_data": {"basename": name, "bytes": size, "hashes": {}},
                "samples": scanned.samples,
                "zip_data": stored if file.compression else None,
            },
        }
        folder.write(f"{key}.json", add_digest(json.dumps(result).encode()))
        return result, scanned.notes

    def _merge(self, results: Sequence[_Entry], files: Sequence[DataFile]) -> list[_Entry]:
        """Return complete index entries, whose shared part is merged of those of all files."""
        kinds: dict[str, tuple[_Entry, str]] = {}  # distinct shared parts, and a file that has it
        for result, file in zip(results, files):
            shared = {**result["shared"], "compression": None}
            kinds.setdefault(json.dumps(shared, sort_keys=True), (shared, file.stored.key))
        try:
            merged = self._scannable().merge_entries([shared for shared, _ in kinds.values()])
        except DataError as error:
            names = " and ".join(self._find_conflict(list(kinds.values())))
            raise type(error)(f"{self._storage.url}: {names}: {error}") from error
        return [
            {**merged, "compression": result["shared"]["compression"], **result["own"]}
            for result in results
        ]

    def _find_conflict(self, kinds: Sequence[tuple[_Entry, str]]) -> tuple[str, ...]:
        """Return the names of two files whose entries cannot be merged."""
        for (entry, name), (other_entry, other_name) in combinations(kinds, 2):
            try:
                self._scannable().merge_entries([entry, other_entry])
            except DataError:
                return name, other_name
        return (kinds[0][1],)


def _check_name(name: str, url: str) -> None:
    """Check that the index of a scan may name a file; raise `ConfigError` if not."""
    with suppress(InvalidIndexError):
        validate_basename(name, "file")
        return
    raise ConfigError(
        f"{url}: the file {name!r:.200} cannot be listed: {NAME_RULES}; rename the file"
    )


def _digest(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(value).encode())


def _warn(storage: Storage, note: str, examples: Mapping[str, str]) -> None:
    name = min(examples)
    others = f" and {len(examples) - 1} others" if len(examples) > 1 else ""
    _LOG.warning("%s%s: %s, such as %s", storage.url_of(name), others, note, examples[name])
