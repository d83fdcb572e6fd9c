"""Destination of a writer's files: a local directory, a storage, or both, with the data set to append to."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from streamplug.errors import AccessDenied, ConfigError, NotFound, OutputExistsError, WriterError
from streamplug.index import INDEX_NAME, Schema, extend_index, parse_index
from streamplug.interfaces import Format, Storage
from streamplug.plugin import local_path, open_storage, output_locations
from streamplug.plugin_kit import make_directory, stage_file, sync_directory
from streamplug.transfer import (
    TemporaryDirectory,
    call_with_retries,
    map_output_errors,
    try_directory_lock,
)
from streamplug.types import FileInfo

_LOG = logging.getLogger("streamplug")
_SHARD_NUMBER = re.compile(r"shard\.([0-9]+)\.")
_MAX_NAMES_IN_ERROR = 3


@dataclass(frozen=True)
class AppendedDataset:
    """An existing data set that a writer appends to.

    `data` is its index.json, `version` what tells that this file has changed (None if the storage does
    not), `schema` the one of its last shard, `number` that of its next shard, and `num_samples` the number
    of its samples.
    """

    storage: Storage
    data: bytes
    version: tuple[int, str] | None
    schema: Schema | None
    number: int
    num_samples: int
    retries: int

    @classmethod
    def read(cls, storage: Storage, retries: int) -> AppendedDataset:
        """Read the index of a data set."""
        url = storage.url_of(INDEX_NAME)
        try:
            # Before the content: a change between the two is noticed by a comparison of the content.
            version = call_with_retries(lambda: _version(storage), retries, option="retry")
            data = call_with_retries(lambda: storage.read(INDEX_NAME), retries, option="retry")
        except NotFound:
            raise NotFound(
                f"{url} does not exist: there is no data set to append to; leave out append=True"
            ) from None
        index = parse_index(data, url)  # raises if it is damaged
        shards = range(len(index))
        names = (raw.basenames[shard] for raw, _ in index.file_tables for shard in shards)
        numbers = [int(match[1]) + 1 for name in names if (match := _SHARD_NUMBER.match(name))]
        last = index.schema(len(index) - 1) if len(index) else None
        number = max(numbers, default=len(index))
        return cls(storage, data, version, last, number, int(index.starts[-1]), retries)

    @property
    def hashes(self) -> Sequence[str] | None:
        """Names of the digests of the last shard; None without shards."""
        return None if self.schema is None else self.schema.entry.get("hashes") or ()

    def columns(self, columns: Mapping[str, str] | None, format_: Format) -> Mapping[str, str]:
        """Return the columns of new shards, which must match the schema of existing ones."""
        where = self.storage.url
        if self.schema is None:
            if columns is None:
                raise ConfigError(f"{where} has no shards yet: give columns=")
            return columns
        if type(self.schema.format) is not type(format_):
            raise ConfigError(
                f"{where} has the format {self.schema.entry['format']!r}: pass format="
            )
        existing = {column.name: column.spec for column in self.schema.columns}
        if columns is not None and dict(columns) != existing:
            raise ConfigError(
                f"columns={dict(columns)}: {where} has {existing}; leave columns= out"
            )
        return existing

    def is_copied_by(self, path: Path) -> bool:
        """Return whether a local index.json is that of a copy, perhaps before or after shards were added."""
        data = path.read_bytes()
        parse_index(data, str(path))  # raises if it is damaged
        ours, others = json.loads(self.data)["shards"], json.loads(data)["shards"]
        return all(own == other for own, other in zip(ours, others))

    def check(self) -> None:
        """Raise WriterError if another writer changed the data set: its shards would have the same names.

        The index is read only if its version says that it may have changed.
        """
        version = call_with_retries(lambda: _version(self.storage), self.retries, option="retry")
        if version is None or version != self.version:
            self._check_content()

    def _check_content(self) -> None:
        url = self.storage.url_of(INDEX_NAME)
        if (
            call_with_retries(lambda: self.storage.read(INDEX_NAME), self.retries, option="retry")
            != self.data
        ):
            raise WriterError(
                f"{url} was changed while shards were added to it; add the new shards again"
            )

    def extended_index(
        self, entries: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]
    ) -> bytes:
        """Return the index.json with more shards, if the data set has not changed."""
        self._check_content()
        return extend_index(json.loads(self.data), entries, extra)


def _version(storage: Storage) -> tuple[int, str] | None:
    """Return the size and version of a data set's index; None if the storage has no versions."""
    try:
        info = storage.stat(INDEX_NAME)
    except AccessDenied:  # it may still be read
        return None
    return (info.size, info.version) if info.version else None


_owners: WeakValueDictionary[str, Destination] = WeakValueDictionary()
"""The destinations of this process's writers, by real paths of their directories, and by their storages."""


class Destination:
    """Local `folder`, and optional `storage`, that a writer writes to; `url` is their name in messages.

    `keep_local` is whether files stay in the folder after their upload.
    """

    def __init__(
        self,
        out: str | Path | tuple[str | Path, str],
        *,
        exist_ok: bool,
        storage_options: Mapping[str, Any] | None,
        append: AppendedDataset | None,
        keep_local: bool,
    ) -> None:
        locations = output_locations(out)
        path = local_path(locations[0])
        self.storage: Storage | None = None
        if path is None or len(locations) > 1:
            self.storage = open_storage(locations[-1], storage_options)
        self._temporary: TemporaryDirectory | None = None
        self._keys: list[str] = []
        if self.storage is not None:
            mounted = local_path(self.storage.url)
            where = f"{locations[-1].rstrip('/')} {storage_options!r}"
            self._keys.append(where if mounted is None else os.path.realpath(mounted))
        self.process = os.getpid()
        # A weak reference to what closes the writer for another one.
        self.make_place: Callable[[], Callable[[], None] | None] = lambda: None
        if path is None:
            self._temporary = TemporaryDirectory()
            path = self._temporary.path
        self.folder = path.absolute()  # the working directory may change meanwhile
        self.url = self.storage.url if self.storage else str(self.folder)
        self._append = append
        # The files of a temporary directory would fill the disk, and be removed all the same.
        self.keep_local = keep_local and self._temporary is None
        self._owned = ExitStack()
        try:
            with map_output_errors(self.folder):
                self._open(exist_ok=exist_ok)
        except BaseException:
            self.close()
            raise

    def _open(self, *, exist_ok: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputExistsError(f"{self.folder} is a file; choose another directory")
        if self._append and self.storage and (self.folder / INDEX_NAME).exists():
            self._check_copy(self._append)
        if not self._append and not exist_ok:
            self._check_empty()
        make_directory(self.folder, durable=True)
        self._own(take_over=exist_ok or self._append is not None)
        if exist_ok:
            self._clear()
        elif not self._append:
            self._check_empty()  # again, as another writer may have ended meanwhile

    def _check_copy(self, appended: AppendedDataset) -> None:
        """Check that the local data set is one that shards may be added to, as a copy of the remote one."""
        if not self.keep_local:
            raise OutputExistsError(
                f"{self.folder} holds a copy of a data set, whose index would be removed after the upload; "
                "pass keep_local=True, or choose another directory"
            )
        if not appended.is_copied_by(self.folder / INDEX_NAME):
            raise OutputExistsError(
                f"{self.folder} holds another data set than {self.url}, whose files would be replaced; "
                "choose another directory"
            )

    def _own(self, *, take_over: bool) -> None:
        """Keep other writers of this machine out of the local directory."""
        folder = os.path.realpath(self.folder)
        keys = [folder, *self._keys]
        ours = {
            key: owner
            for key in keys
            if (owner := _owners.get(key)) is not None and owner.process == os.getpid()
        }
        for owner in set(ours.values()) if take_over else ():
            # As when a cell of a notebook runs again.
            if make_place := owner.make_place():
                make_place()
        if not self._owned.enter_context(try_directory_lock(self.folder)):
            end = "this process: end it, such as by a `with` statement"
            raise OutputExistsError(
                f"{self.folder} is being written by another writer, of "
                f"{end if folder in ours else 'another process: end that one'}; or choose another directory"
            )
        self._keys = keys
        _owners.update(dict.fromkeys(keys, self))

    def remove_stale_raw(self, raw: FileInfo, stored: FileInfo | None) -> None:
        """Remove what an earlier writer left under the name of the raw file of a compressed one.

        In a local directory, readers would take it for that file, decompressed.
        """
        if stored is None or stored.basename == raw.basename:
            return
        path, storage = self.folder / raw.basename, self.storage
        with map_output_errors(path):
            path.unlink(missing_ok=True)
        if storage is not None and local_path(storage.url) is not None:
            call_with_retries(partial(storage.delete, raw.basename))

    def write_index(self, data: bytes, *, durable: bool) -> None:
        """Write the local index, if it stays, unless another writer has written one meanwhile.

        There are no locks against writers on other machines, or of object stores.
        """
        home = self.storage or open_storage(str(self.folder))
        if not self._append and self._has_data_set(home):
            raise WriterError(
                f"{home.url_of(INDEX_NAME)} was written by another writer meanwhile, and shards of both may "
                "be mixed: let one writer write the data set again, or each one in a place of its own"
            )
        if self.storage is not None and not self.keep_local:
            return
        path = self.folder / INDEX_NAME
        with map_output_errors(path, len(data)):
            if durable:  # the names of the shards, whose content is on the disk
                sync_directory(path.parent)
            with stage_file(path, durable=durable) as part:
                part.write_bytes(data)

    def _check_empty(self) -> None:
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else ()
        if names:
            raise OutputExistsError(
                f"Directory is not empty: {self.folder} holds {quote_names(names)}; choose another "
                "directory, or pass exist_ok=True to remove what is in it"
            )
        if self.storage and self._has_data_set(self.storage):
            raise OutputExistsError(
                f"{self.url} already holds a data set; choose another place, or pass exist_ok=True to "
                "replace it"
            )

    def _clear(self) -> None:
        # First, so that neither a killed removal nor a loss of power leaves an index of other shards.
        (self.folder / INDEX_NAME).unlink(missing_ok=True)
        sync_directory(self.folder)
        # Not the directory itself, which may be locked, a link or a mount point.
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        storage = self.storage
        if storage and self._has_data_set(storage):
            # Without an index, a partly replaced data set is not mistaken for a complete one.
            call_with_retries(lambda: delete_durably(storage, INDEX_NAME))

    def _has_data_set(self, storage: Storage) -> bool:
        """Return whether a storage holds a data set; False if it denies what does not exist."""
        try:
            return call_with_retries(partial(storage.exists, INDEX_NAME))
        except AccessDenied as error:
            if not error.may_be_missing:
                raise
            _LOG.warning(
                "whether %s exists is not told without the right to list: taking it for missing",
                storage.url_of(INDEX_NAME),
            )
            return False

    def close(self) -> None:
        """Let other writers in, and remove the local directory if it is temporary."""
        for key in self._keys:
            if _owners.get(key) is self:
                del _owners[key]
        self._owned.close()
        if self._temporary is not None:
            self._temporary.close()


def delete_durably(storage: Storage, *keys: str) -> None:
    """Delete objects; local ones stay deleted after a loss of power."""
    for key in keys:
        storage.delete(key)
    root = local_path(storage.url)
    if root is not None:
        with map_output_errors(root):
            for folder in {(root / key).parent for key in keys}:
                if folder.is_dir():
                    sync_directory(folder)


def quote_names(names: Sequence[str]) -> str:
    """Return the first of some file names, for an error message."""
    quoted = ", ".join(repr(name) for name in names[:_MAX_NAMES_IN_ERROR])
    rest = len(names) - _MAX_NAMES_IN_ERROR
    return f"{quoted} and {rest:,} more" if rest > 0 else quoted
