"""File lists written by other libraries."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from streamplug.errors import (
    ConfigError,
    InvalidIndexError,
    NotFound,
    prefix_errors,
)
from streamplug.index import validate_basename
from streamplug.interfaces import Format, Storage
from streamplug.plugin import is_url
from streamplug.transfer import call_with_retries
from streamplug_files.format import FileListFormat
from streamplug_files.glob import FileSet, escape, is_glob, unescape
from streamplug_files.listing import DataFile
from streamplug_files.scan_source import FileListEntry

_ADVICE = "write the list again, or name the files themselves in remote="


class FileListFoundError(NotFound):
    """The index.json is a file list of another library."""


@dataclass(frozen=True)
class FileListClaims:
    """What the file list at `where` says of its files, by their keys; verified against the files."""

    where: str = ""
    files: Mapping[str, FileListEntry] = field(default_factory=dict)

    def cache_keys(self) -> list[str]:
        """Return texts that identify these claims in a cache key; empty if there are none."""
        return [f"{key}: {entry.samples}" for key, entry in self.files.items()]

    def check_size(self, file: DataFile, url: str) -> None:
        """Raise InvalidIndexError if the size of a file differs."""
        entry, size = self.files.get(file.stored.key), file.stored.size
        if entry is not None and entry.size not in (None, size):
            raise InvalidIndexError(
                f"{url} has {size} bytes, {self.where} says {entry.size}; {_ADVICE}"
            )

    def check_samples(self, file: DataFile, samples: int, url: str) -> None:
        """Raise InvalidIndexError if the number of samples of a file differs."""
        entry = self.files.get(file.stored.key)
        if entry is not None and entry.samples != samples:
            raise InvalidIndexError(
                f"{url} has {samples} samples, {self.where} says {entry.samples}; {_ADVICE}"
            )


def resolve_file_list(
    storage: Storage, files: FileSet, format_: Format, retries: int
) -> tuple[FileSet, FileListClaims]:
    """Return the files to read, and the claims of the file list that names them, if any.

    `files` may name a list, or a directory that contains one.

    Raises:
        ConfigError: If a file is not a valid list, or names files outside the root.
        InvalidIndexError: If a list is damaged.
    """
    if not isinstance(format_, FileListFormat):
        return files, FileListClaims()
    if files.whole:
        for name in format_.file_list_names():
            try:
                return _read(storage, files.root, name, format_, retries)
            except NotFound:
                continue
        return files, FileListClaims()
    lists = [
        unescape(part)
        for part in files.parts
        if part and not is_glob(part) and format_.is_file_list(unescape(part))
    ]
    if not lists:
        return files, FileListClaims()
    if len(files.parts) > 1:
        raise ConfigError(
            f"{storage.url_of(lists[0])} is a list of files, and not all that is named; give each list a "
            "stream of its own in streams="
        )
    return _read(storage, files.root, lists[0], format_, retries)


def _read(
    storage: Storage, root: str, name: str, format_: FileListFormat, retries: int
) -> tuple[FileSet, FileListClaims]:
    where = storage.url_of(name)

    def read_entries() -> Sequence[FileListEntry] | None:
        content = storage.read(name)
        with prefix_errors(where):
            return format_.parse_file_list(name, content)

    entries = call_with_retries(read_entries, retries)
    if entries is None:
        raise ConfigError(
            f"{where} is no list of files that this format knows; for a data set, name its directory"
        )
    claims: dict[str, FileListEntry] = {}
    keys = [_key(entry.name, storage.url, where) for entry in entries]
    for key, entry in zip(keys, entries):
        first = claims.setdefault(key, entry)
        if (first.samples, first.size) != (entry.samples, entry.size):
            raise InvalidIndexError(
                f"{where} names {entry.name!r:.200} more than once, and says different things of it: "
                f"{_describe(first)}, and {_describe(entry)}; {_ADVICE}"
            )
    if not claims:
        raise InvalidIndexError(f"{where} names no files")
    return FileSet(root, tuple(map(escape, keys))), FileListClaims(where, claims)


def _describe(entry: FileListEntry) -> str:
    size = "" if entry.size is None else f" in {entry.size} bytes"
    return f"{entry.samples} samples{size}"


def _key(name: str, root: str, where: str) -> str:
    """Return the path of a listed file relative to the root."""
    name = name.removeprefix("file://").removeprefix("./")
    if name.startswith("/"):
        name, root = os.path.normpath(name), os.path.normpath(root)
    if name.startswith("/") or is_url(name):
        if not name.startswith(f"{root.rstrip('/')}/"):
            raise ConfigError(
                f"{where} names {name!r:.200}, which is not below its directory; name the files in remote="
            )
        name = name[len(root.rstrip("/")) + 1 :]
    with suppress(InvalidIndexError):
        return validate_basename(name, "file")
    raise InvalidIndexError(f"{where} names {name!r:.200}, which is no file below its directory")
