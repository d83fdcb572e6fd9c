"""Destination of a writer's files: a local directory, a storage, or both."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from streamplug.errors import AccessDenied, OutputExistsError, WriterError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin import local_path, open_storage, output_locations
from streamplug.plugin_kit import make_directory, stage_file, sync_directory
from streamplug.transfer import (
    TemporaryDirectory,
    call_with_retries,
    map_output_errors,
    try_directory_lock,
)
from streamplug.types import FileInfo
from streamplug.write.append import AppendedDataset

_LOG = logging.getLogger("streamplug")
_MAX_NAMES_IN_ERROR = 3

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
