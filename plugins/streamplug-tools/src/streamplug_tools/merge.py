"""Merging of the indexes of data sets in folders of one location; shards stay in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from streamplug_files import PLAN_NAME

from streamplug.config import check_flags, check_seconds, suggest_keywords
from streamplug.errors import ConfigError, InvalidIndexError, NotFound, OutputExistsError
from streamplug.index import INDEX_NAME, is_shard_name, parse_index
from streamplug.interfaces import Storage, public_urls
from streamplug.plugin import local_path, open_storage
from streamplug.transfer import (
    DOWNLOAD_TIMEOUT_SECONDS,
    STATE_DIR,
    TimeoutStorage,
    call_with_retries,
)
from streamplug_tools.index_merge import merge_indexes, write_index
from streamplug_tools.part_task import ATTEMPTS


@suggest_keywords
def merge_index(
    *locations: Any,
    keep_local: bool = True,
    download_timeout: float = DOWNLOAD_TIMEOUT_SECONDS,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Write one index for data sets in folders below the location of the index.

    Called as ``merge_index(parts, out)``, or as ``merge_index(out)`` for all folders with an index below
    `out`, at any depth, sorted by name; a folder whose index was merged stands for all folders below it.
    Nothing is left out: a folder with shards but no index, an empty one, a hidden one with a data set, and a
    link to one are refused. Shards are neither read nor moved. All parts must have the same columns, in any
    order; compression, digests and shard sizes may differ.

    Args:
        *locations: `parts` are the folders of the parts, or their index files, in the order of their samples.
            `out` is the location of the merged index. Each is a path, a URL, or a pair of both. Of a pair,
            the local index is read if it exists, and the merged index is written to both.
        keep_local: Whether the index is also written to the local path of a pair `out`.
        download_timeout: Stall timeout of downloads in seconds.
        storage_options: Options of the storages.

    Returns:
        Number of shards in the index.

    Raises:
        ConfigError: If a part is not below `out` or is named twice, there are no parts, their columns differ,
            or a folder is hidden, a link, or has a name that an index cannot hold; nothing is written then.
        NotFound: If a part has no index.
        OutputExistsError: If `out` has an index that names shards in `out` itself.
        InvalidIndexError: If the index of a part is invalid.
    """
    check_flags(keep_local=keep_local)
    check_seconds("download_timeout", download_timeout)
    if len(locations) not in (1, 2):
        raise ConfigError(
            "give merge_index(parts, out), or merge_index(out) for all parts below it"
        )
    homes = _open_storages(locations[-1], storage_options)
    readers = [
        home if local_path(home.url) is not None else TimeoutStorage(home, download_timeout)
        for home in homes
    ]
    if len(locations) == 1:
        parts = [(readers[-1], folder) for folder in _folders(readers[-1])]
    elif isinstance(locations[0], (str, PathLike)):
        raise ConfigError(f"parts={public_urls(locations[0])!r:.200}: expected a list of locations")
    else:
        parts = [_find_part(location, readers, storage_options) for location in locations[0]]
        _check_distinct(parts)
    if not parts:
        raise ConfigError(f"{homes[-1].url} has no parts: no folder below it has an {INDEX_NAME}")
    index, shards = merge_indexes(parts)
    homes = homes if keep_local else homes[-1:]
    for home in homes:
        _check_no_own_shards(home)
    write_index(index, homes)
    return shards


def _open_storages(location: Any, options: Mapping[str, Any] | None) -> list[Storage]:
    """Return the storages of a place: one, or the local and the remote one of a pair."""
    locations = location if isinstance(location, tuple) else (location,)
    if len(locations) not in (1, 2) or not all(isinstance(p, (str, PathLike)) for p in locations):
        raise ConfigError(
            f"{public_urls(location)!r:.200}: expected a path, a URL, or a pair of both"
        )
    return [open_storage(fspath(p), options) for p in locations]


def _folders(home: Storage) -> list[str]:
    """Return the folders below `home` that have an index, but for those in the index of a folder above.

    Raises:
        ConfigError: If a folder has parts of a run that is not finished, or is hidden or a link.
        NotFound: If a folder has shards, but no index, or nothing at all.
    """
    keys = {info.key for info in home.list("")}
    _check_plans(home, keys)
    root = local_path(home.url)
    if root is not None:
        _check_directories(root)
    names = [key.rpartition("/") for key in keys]
    with_index = {folder for folder, _, name in names if name == INDEX_NAME}
    folders = with_index | {folder for folder, _, name in names if is_shard_name(name)}
    if "" in with_index:  # it is to be replaced; `_check_no_own_shards` looks at it
        folders.discard("")
    indexes = _MergedIndexes(home, with_index - {""})
    parts = [f for f in sorted(folders) if not (_is_state(f) or indexes.contain(f))]
    for folder in parts:
        url = home.url_of(folder) if folder else home.url
        if any(name.startswith(".") for name in folder.split("/")):
            raise ConfigError(
                f"{url} is hidden, and its samples would be left out: rename it if it is a part, else remove "
                "it; or name the parts"
            )
        if folder not in with_index:
            raise NotFound(
                f"{url} has shards, but no {INDEX_NAME}, as its writer has not finished: write it again, or "
                "remove it; or name the parts"
            )
    return parts


def _check_plans(home: Storage, keys: AbstractSet[str]) -> None:
    for plan in sorted(key for key in keys if key.rpartition("/")[2] == PLAN_NAME):
        if f"{plan.removesuffix(PLAN_NAME)}{INDEX_NAME}" not in keys:
            raise ConfigError(
                f"{home.url_of(plan)} belongs to an unfinished data set: repeat the call that began "
                "it, or remove its directory"
            )


def _check_directories(root: Path) -> None:
    """Raise an error if a directory is a link with data sets, or empty, as a writer leaves it at first."""
    for path, folders, files in os.walk(root):
        for entry in map(Path(path).joinpath, [*folders, *files]):
            if entry.is_symlink() and not entry.is_file() and _may_have_parts(entry):
                raise ConfigError(
                    f"{entry} is a link, which is not followed, and its samples would be left out: name the "
                    "parts, or remove it"
                )
        is_hidden = any(name.startswith(".") for name in Path(path).relative_to(root).parts)
        if not (folders or files or is_hidden or Path(path) == root):
            raise NotFound(
                f"{path} is empty, as a writer leaves it that has not finished: write it again, or remove "
                "it; or name the parts"
            )


def _may_have_parts(link: Path) -> bool:
    """Return whether a link leads to a directory with an index or shards, or nowhere."""
    if not link.exists():
        return not link.name.startswith(".")  # editors make hidden ones to lock a file
    names = (info.key.rpartition("/")[2] for info in open_storage(str(link)).list(""))
    return any(name == INDEX_NAME or is_shard_name(name) for name in names)


def _is_state(folder: str) -> bool:
    """Return whether a folder is of a cache, or of unfinished parts."""
    return any(
        name == ATTEMPTS or (name.startswith(".") and name.endswith(STATE_DIR))
        for name in folder.split("/")
    )


class _MergedIndexes:
    """The indexes of folders below a location, as far as they name files in further folders."""

    def __init__(self, home: Storage, folders: AbstractSet[str]) -> None:
        self._home, self._folders = home, folders
        self._named: dict[str, set[str]] = {}

    def contain(self, folder: str) -> bool:
        """Return whether the index of a folder above names the files of this one.

        Raises:
            ConfigError: If a merged index above leaves it out.
        """
        for above in _above(folder):
            if above not in self._folders:
                continue
            named = self._folders_named_by(above)
            if folder in named or (named and self._is_empty(folder)):
                return True
            if named:
                index = self._home.url_of(f"{above}/{INDEX_NAME}")
                raise ConfigError(
                    f"{self._home.url_of(folder)} is not in {index}, and its samples would be left out: "
                    "merge that again, or name the parts"
                )
        return False

    def _folders_named_by(self, folder: str) -> set[str]:
        if folder not in self._named:
            names = {
                name.rpartition("/")[0] for name in _basenames(self._home, f"{folder}/{INDEX_NAME}")
            }
            inner = {f"{folder}/{name}" for name in names if name}
            self._named[folder] = inner.union(*map(_above, inner)) - {folder, *_above(folder)}
        return self._named[folder]

    def _is_empty(self, folder: str) -> bool:
        return folder in self._folders and not any(_basenames(self._home, f"{folder}/{INDEX_NAME}"))


def _check_no_own_shards(home: Storage) -> None:
    """Raise OutputExistsError if there is an index of shards that are in no folder below it."""
    with suppress(NotFound, InvalidIndexError):
        for name in _basenames(home, INDEX_NAME):
            if "/" not in name:
                raise OutputExistsError(
                    f"{home.url_of(INDEX_NAME)} names {name!r}, which is in no folder below it, so a merged "
                    "index would leave it out: write its samples as a part in a folder, or remove the index"
                )


def _basenames(home: Storage, key: str) -> Iterator[str]:
    """Yield the files that an index names."""
    index = parse_index(call_with_retries(partial(home.read, key)), home.url_of(key))
    for files in index.tables.values():
        yield from filter(None, (files.basenames[shard] for shard in range(len(index))))


def _above(folder: str) -> Iterator[str]:
    """Yield the folders that a folder is in."""
    return (folder[:n] for n, letter in enumerate(folder) if letter == "/")


def _check_distinct(parts: Sequence[tuple[Storage, str]]) -> None:
    """Check that no part would be in the index twice.

    Raises:
        ConfigError: If two parts are the same folder.
    """
    seen: set[str] = set()
    for home, folder in parts:
        if folder in seen:
            raise ConfigError(
                f"{home.url_of(folder)} is named twice among the parts, so its samples would be repeated; "
                "name each part once"
            )
        seen.add(folder)


def _find_part(
    location: Any, homes: Sequence[Storage], options: Mapping[str, Any] | None
) -> tuple[Storage, str]:
    """Return the storage and the folder of a part's index, the local ones if it exists there."""
    locations: list[tuple[Storage, str]] = []
    for storage in _open_storages(location, options):
        url = storage.url.removesuffix(f"/{INDEX_NAME}").rstrip("/")
        for home in homes:
            root = f"{home.url.rstrip('/')}/"
            if url.startswith(root):
                locations.append((home, url.removeprefix(root)))
    if not locations:
        raise ConfigError(
            f"{public_urls(location)!r:.200} is not below {homes[-1].url}: an index can only name "
            "files below it"
        )
    for home, folder in locations[:-1]:
        if home.exists(f"{folder}/{INDEX_NAME}"):
            return home, folder
    return locations[-1]
