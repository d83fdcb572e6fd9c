"""Destination of a writer's files: a local directory, a storage, or both."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamplug.errors import OutputExistsError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin.location import local_path, open_storage, output_locations
from streamplug.plugin_kit.file_commit import make_directory, sync_directory
from streamplug.transfer.disk_errors import map_output_errors
from streamplug.transfer.tempdir import TemporaryDirectory

_MAX_NAMES_IN_ERROR = 3


class Destination:
    """Local `folder`, and optional `storage`, that a writer writes to; `url` is their name in messages."""

    def __init__(
        self,
        out: str | Path | tuple[str | Path, str],
        *,
        exist_ok: bool,
        storage_options: Mapping[str, Any] | None,
        append: bool = False,
    ) -> None:
        locations = output_locations(out)
        path = local_path(locations[0])
        self.storage: Storage | None = None
        if path is None or len(locations) > 1:
            self.storage = open_storage(locations[-1], storage_options)
        self._temporary: TemporaryDirectory | None = None
        if path is None:
            self._temporary = TemporaryDirectory()
            path = self._temporary.path
        self.folder = path
        self.url = self.storage.url if self.storage else str(self.folder)
        try:
            with map_output_errors(self.folder):
                if not append:
                    self._clear(exist_ok=exist_ok)
                make_directory(self.folder, durable=True)
        except BaseException:
            self.remove_temporary()
            raise

    def _clear(self, *, exist_ok: bool) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputExistsError(f"{self.folder} is a file; choose another directory")
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else ()
        if names:
            if not exist_ok:
                raise OutputExistsError(
                    f"Directory is not empty: {self.folder} holds {quote_names(names)}; choose another "
                    "directory, or pass exist_ok=True to remove what is in it"
                )
            # First, so that neither a killed removal nor a loss of power leaves an index of other shards.
            (self.folder / INDEX_NAME).unlink(missing_ok=True)
            sync_directory(self.folder)
            shutil.rmtree(self.folder)
        if self.storage and self.storage.exists(INDEX_NAME):
            if not exist_ok:
                raise OutputExistsError(
                    f"{self.url} already holds a data set; choose another place, or pass "
                    "exist_ok=True to replace it"
                )
            # Without an index, a partly replaced data set is not mistaken for a complete one.
            delete_durably(self.storage, INDEX_NAME)

    def remove_temporary(self) -> None:
        """Remove the local directory if it is temporary."""
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
