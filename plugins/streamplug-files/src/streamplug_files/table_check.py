"""Refusal of the data files of tables: their rows may be old or deleted, which only the table knows."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from streamplug.errors import ConfigError, StorageError, Transient
from streamplug.interfaces import Storage, public_url
from streamplug.plugin import absolute_location, is_url, join, load_catalog
from streamplug.transfer import call_with_retries
from streamplug.types import ObjectInfo
from streamplug_files.glob import FileSet, compile_glob, glob_prefix, is_name, unescape

OpenStorage = Callable[[str], Storage]
_LOG = logging.getLogger("streamplug.scan")


class ListedTables:
    """The tables among listed files."""

    def __init__(self, table_files: Mapping[str, str]) -> None:
        """Take the `table_files` of a format."""
        self._patterns = {
            name: re.compile(f"((?:.*/)?){compile_glob(glob).pattern}", re.DOTALL)
            for name, glob in table_files.items()
        }
        self._tables: dict[str, str] = {}  # name of the format by directory, with a slash

    def add(self, key: str) -> None:
        """Note the table to which a listed file belongs, if any."""
        for name, pattern in self._patterns.items():
            if (match := pattern.fullmatch(key)) is not None:
                self._tables[match[1]] = name

    def check(self, storage: Storage, keys: Collection[str]) -> None:
        """Refuse data files of a table.

        Raises:
            ConfigError: If one of the `keys` is below the directory of a table, or there are none.
        """
        for folder, name in self._tables.items():
            if not keys or any(key.startswith(folder) for key in keys):
                raise table_error(storage.url_of(folder.rstrip("/")), name)


def table_error(url: str, name: str) -> ConfigError:
    """Return the error for data files of a table at a URL; `name` is its format."""
    advice = (
        f"read it with format={name!r} (--src-format {name})"
        if name in load_catalog()["source"]
        else "which is not supported: write the rows that are meant elsewhere"
    )
    return ConfigError(
        f"{public_url(url)} is a table of the format {name}, whose files may have old or deleted rows; "
        f"{advice}, or name its files one by one to read all rows that are in them"
    )


def check_tables_above(
    files: FileSet, table_files: Mapping[str, str], open_storage: OpenStorage, retries: int
) -> None:
    """Refuse directories and globs in tables that listing them does not show; warn of single files.

    Args:
        files: The data files.
        table_files: Those of `ScannableFormat`.
        open_storage: Returns the storage of a URL or path.
        retries: Retries of each request.

    Raises:
        ConfigError: If one is in a table.
    """
    if not table_files or files.queries or "?" in files.root:
        return
    refused: dict[str, bool] = {}  # whether more than single files are read, by directory
    for part in files.parts:
        is_single = is_name(part)
        folder, _, rest = (unescape(part) if is_single else glob_prefix(part)).rpartition("/")
        for url in _possible_tables(absolute_location(join(files.root, folder)), listed=not rest):
            refused[url] = refused.get(url, False) or not is_single
    for url, is_refused in refused.items():
        name = find_table(open_storage(url), table_files, retries)
        if name is not None:
            error = table_error(url, name)
            if is_refused:
                raise error
            _LOG.warning("%s", error)


def _possible_tables(url: str, *, listed: bool) -> Iterator[str]:
    """Yield a directory unless it was `listed`, and those above whose data it may have."""
    if not listed:
        yield url
    least = 3 if is_url(url) else 1  # the bucket of a URL, or the root of the file system
    folders: Sequence[str] = url.split("/")
    while len(folders) > least and ("=" in folders[-1] or folders[-1] == "data"):
        is_data = folders[-1] == "data"
        folders = folders[:-1]
        if is_data or "=" not in folders[-1]:
            yield "/".join(folders)
        if is_data:
            return


def find_table(storage: Storage, table_files: Mapping[str, str], retries: int) -> str | None:
    """Return the format of the table in a storage; None if there is none, or it cannot be listed.

    Args:
        storage: The storage.
        table_files: A glob of files that every table of a format has, by the name of the format.
        retries: Retries of each request.
    """
    for name, glob in table_files.items():
        pattern = compile_glob(glob)
        try:
            infos = call_with_retries(partial(_list, storage, glob_prefix(glob)), retries)
        except Transient:
            raise
        except StorageError:  # a storage that cannot list
            return None
        if any(pattern.fullmatch(info.key) for info in infos):
            return name
    return None


def _list(storage: Storage, prefix: str) -> Sequence[ObjectInfo]:
    return list(storage.list(prefix))
