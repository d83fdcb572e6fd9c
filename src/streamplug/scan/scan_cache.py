"""Cache of scans: the index of data files without one.

Results are stored per file by its name, size and version, so that only new and changed files are scanned
again.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from streamplug.cache.staging import stage_cache_file
from streamplug.cache.user_cache import source_cache_dir
from streamplug.errors import ConfigError, DataError, StorageError
from streamplug.index import format_index
from streamplug.interfaces import Format, MultiFileFormat, ScannableFormat, Storage
from streamplug.plugin.registry import make
from streamplug.plugin_kit.manifest import MANIFEST_ROLE
from streamplug.scan.file_lists import FileListClaims, check_found, resolve_file_list
from streamplug.scan.glob import FileSet
from streamplug.scan.listing import DataFile, list_data_files
from streamplug.scan.multifile_shards import MULTIFILE_PREFIX, FileTree, bundles, list_tree
from streamplug.scan.scanner import scan_file
from streamplug.transfer.disk_errors import map_disk_errors, prefix_data_errors
from streamplug.transfer.file_lock import STATE_DIR, cache_lock
from streamplug.transfer.pool import run_jobs

_FOLDER = "scan"
_LOCK = "scan"
_VERSION = 1
_AT_ONCE = 8
_LOG = logging.getLogger("streamplug.scan")

Report = Callable[[int, int], None]  # called with the number of scanned files and the total


@dataclass(frozen=True, slots=True)
class ScannedIndex:
    """Content of the index.json made by a scan, and the folder of the files written with it."""

    data: bytes
    folder: Path


class ScanCache:
    """Makes the index of data files, or returns the cached one."""

    def __init__(self, storage: Storage, near: Path | None, spec: str, retries: int) -> None:
        """Scan files of format `spec`; `near` is the local directory of `storage`, if it is local."""
        self._storage, self._near, self._retries = storage, near, retries
        self._spec = spec
        self._format: Format = make("format", spec)

    def get_index(
        self, files: FileSet, base: Path, report: Report = lambda *_: None
    ) -> ScannedIndex:
        """Return the index of a file set, cached in `base` or, if not writable, in the user's cache."""
        if isinstance(self._format, MultiFileFormat):
            return self._of_bundles(files, base, self._format)
        files, claims = resolve_file_list(self._storage, files, self._format, self._retries)
        found = list_data_files(
            self._storage, files, self._scannable().file_suffixes(), self._retries
        )
        check_found(claims, found, self._storage)
        base = _writable(base, self._storage.url)
        folder = base / STATE_DIR / _FOLDER
        marks = [self._mark(each) for each in found]
        path = folder / f"{_digest([*marks, *claims.marks()])}.index"
        with map_disk_errors(folder):
            if not path.exists():
                with cache_lock(base, _LOCK):
                    if not path.exists():  # no other process made it meanwhile
                        self._make(found, marks, base, path, report, claims)
            return ScannedIndex(path.read_bytes(), folder)

    def _scannable(self) -> ScannableFormat:
        if not isinstance(self._format, ScannableFormat):
            raise ConfigError(
                f"format {self._spec} cannot be read without an index.json; name a directory that has one"
            )
        return self._format

    def _of_bundles(self, files: FileSet, base: Path, format_: MultiFileFormat) -> ScannedIndex:
        tree = list_tree(self._storage, files, self._retries)
        base = _writable(base, self._storage.url)
        folder = base / STATE_DIR / _FOLDER
        mark = _digest([_VERSION, self._spec, self._storage.url, tree.digest])
        path = folder / f"{mark}.index"
        with map_disk_errors(folder):
            if not path.exists():
                with cache_lock(base, _LOCK):
                    if not path.exists():
                        self._bundle(tree, format_, mark, base, path)
            return ScannedIndex(path.read_bytes(), folder)

    def _bundle(
        self, tree: FileTree, format_: MultiFileFormat, mark: str, base: Path, path: Path
    ) -> None:
        with prefix_data_errors(self._storage.url):
            chosen = format_.select_files([each.key for each in tree.files])
        _warn(self._storage, {note: {"": example} for note, example in chosen.notes.items()})
        entries = []
        for number, bundle in enumerate(bundles(tree.files, tree.repeated(chosen))):
            name, content = f"{mark}/{number:05d}.{MANIFEST_ROLE}", bundle.pack()
            (path.parent / mark).mkdir(exist_ok=True)
            _keep(base, path.parent / name, content)
            data = {"basename": f"{MULTIFILE_PREFIX}{number:05d}", "bytes": int(bundle.sizes.sum())}
            digest = {"xxh3_64": xxhash.xxh3_64_hexdigest(content)}
            entries.append(
                {
                    **chosen.entry,
                    "compression": None,
                    "raw_data": {**data, "hashes": {}},
                    f"raw_{MANIFEST_ROLE}": {
                        "basename": name,
                        "bytes": len(content),
                        "hashes": digest,
                    },
                    "samples": len(bundle),
                    "zip_data": None,
                    f"zip_{MANIFEST_ROLE}": None,
                }
            )
        _keep(base, path, format_index(entries, {}))

    def _mark(self, found: DataFile) -> str:
        """Return the cache key of a file, of its name, size and version."""
        stored = found.stored
        said = [_VERSION, self._spec, self._storage.url, stored.key, stored.size, stored.version]
        return _digest(said)

    def _make(  # noqa: PLR0917 - the state of get_index
        self,
        found: Sequence[DataFile],
        marks: Sequence[str],
        base: Path,
        path: Path,
        report: Report,
        claims: FileListClaims,
    ) -> None:
        """Scan each file once, and write an entry for each time it is listed."""
        files = dict(zip(marks, found))
        scanned = {mark: _known(path.parent, mark) for mark in files}
        missing = [mark for mark, said in scanned.items() if said is None]
        told: dict[str, dict[str, str]] = {}
        done = len(files) - len(missing)

        def look(mark: str) -> None:
            nonlocal done
            said, notes = self._look(files[mark], mark, base)
            scanned[mark] = said
            for note, example in notes.items():
                told.setdefault(note, {})[files[mark].stored.key] = example
            done += 1
            report(done, len(files))

        report(done, len(files))
        run_jobs([partial(look, mark) for mark in missing], _AT_ONCE)
        _warn(self._storage, told)
        entries = [said for mark in marks if (said := scanned[mark]) is not None]
        for each, said in zip(found, entries):
            claims.check_samples(
                each, said["own"]["samples"], self._storage.url_of(each.stored.key)
            )
        _keep(base, path, format_index(self._united(entries, found), {}))

    def _look(
        self, found: DataFile, mark: str, base: Path
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        looked = scan_file(self._scannable(), found, self._storage, self._near, self._retries)
        folder = base / STATE_DIR / _FOLDER
        entry: dict[str, Any] = {}
        for role, content in looked.scanned.files.items():
            name = f"{mark}.{role}"
            _keep(base, folder / name, content)
            digest = {"xxh3_64": xxhash.xxh3_64_hexdigest(content)}
            entry[f"raw_{role}"] = {"basename": name, "bytes": len(content), "hashes": digest}
            entry[f"zip_{role}"] = None
        name = found.raw
        if self._near is not None and found.compression is not None:
            name = f"{mark}.{self._format.suffix}"  # decompressed into the scan folder
        raw = {"basename": name, "bytes": looked.size, "hashes": {}}
        stored = {"basename": found.stored.key, "bytes": found.stored.size, "hashes": {}}
        said = {
            "shared": {**looked.scanned.entry, "compression": found.compression},
            "own": {
                **entry,
                "raw_data": raw,
                "samples": looked.scanned.samples,
                "zip_data": stored if found.compression else None,
            },
        }
        _keep(base, folder / f"{mark}.json", json.dumps(said).encode())
        return said, looked.scanned.notes

    def _united(
        self, said: Sequence[Mapping[str, Any]], found: Sequence[DataFile]
    ) -> list[Mapping[str, Any]]:
        kinds: dict[str, Mapping[str, Any]] = {}
        examples: list[str] = []
        for each, file in zip(said, found):
            text = json.dumps(each["shared"], sort_keys=True)
            if text not in kinds:
                kinds[text] = {**each["shared"], "compression": None}
                examples.append(file.stored.key)
        plain = list(kinds.values())
        try:
            shared = self._scannable().merge_entries(plain)
        except DataError as error:
            both = " and ".join(self._apart(plain, examples))
            raise type(error)(f"{self._storage.url}: {both}: {error}") from error
        return [
            {**shared, "compression": each["shared"]["compression"], **each["own"]} for each in said
        ]

    def _apart(self, kinds: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
        """Return the names of the first two files whose entries cannot be merged."""
        for later in range(1, len(kinds)):
            for earlier in range(later):
                try:
                    self._scannable().merge_entries([kinds[earlier], kinds[later]])
                except DataError:
                    return [names[earlier], names[later]]
        return list(names[:1])


def _known(folder: Path, mark: str) -> dict[str, Any] | None:
    """Return the stored result for a file; None if it is missing or incomplete."""
    try:
        said: dict[str, Any] = json.loads((folder / f"{mark}.json").read_bytes())
        for role, file in said["own"].items():
            made = role.startswith("raw_") and role != "raw_data"
            if made and (folder / file["basename"]).stat().st_size != file["bytes"]:
                return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return said


def _keep(base: Path, path: Path, content: bytes) -> None:
    with stage_cache_file(base, _LOCK, path) as part:
        part.write_bytes(content)


def _digest(said: Any) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(said).encode())


def _writable(base: Path, url: str) -> Path:
    """Return `base` if it is writable, else a directory in the user's cache."""
    with suppress(OSError):
        (base / STATE_DIR / _FOLDER).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base / STATE_DIR / _FOLDER):
            return base
    other = source_cache_dir(url)
    try:
        (other / STATE_DIR / _FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"neither {base} nor {other} can be written to ({error.strerror}), so what is found in the "
            f"files of {url} cannot be kept; give local=, or write an index.json with streamplug index scan"
        ) from error
    return other


def _warn(storage: Storage, told: Mapping[str, Mapping[str, str]]) -> None:
    for note, examples in told.items():
        name = min(examples)
        others = f" and {len(examples) - 1} others" if len(examples) > 1 else ""
        _LOG.warning("%s%s: %s, such as %s", storage.url_of(name), others, note, examples[name])
