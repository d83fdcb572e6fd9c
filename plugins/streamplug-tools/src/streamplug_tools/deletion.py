"""Deletion of a data set by its location."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

from streamplug.config import check_flags, suggest_keywords
from streamplug.errors import ConfigError
from streamplug.interfaces import Storage
from streamplug.plugin import local_path, open_storage
from streamplug.transfer import try_directory_lock
from streamplug_tools.dataset_files import find_reference
from streamplug_tools.dataset_removal import list_named_files, remove_files
from streamplug_tools.options import Location
from streamplug_tools.partitioned_output import lock_output


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Result of a deletion.

    Attributes:
        url: URL of the data set.
        removed: Whether the files were removed; False if they would be.
        files: Names of the files of the data set, relative to its location.
        bytes: Bytes of these files.
        kept: Names of other files in the location, which stay.
    """

    url: str
    removed: bool
    files: Sequence[str]
    bytes: int
    kept: Sequence[str]


@suggest_keywords
def delete(
    location: Location,
    *,
    dry_run: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> DeleteResult:
    """Delete the files of a data set: those that its index or its plan names, and no others.

    The index is deleted first, so that nobody reads a part of the data set. If a call is killed, the same
    call deletes the rest. Views and merged indexes that refer to the data set cannot be read afterwards.

    Args:
        location: Path or URL of a data set, or of an unfinished one.
        dry_run: Whether to delete nothing, and only return what would be deleted.
        storage_options: Options of the storage.

    Raises:
        NotFound: If there is no data set, nor an unfinished one.
        ConfigError: If there is a view or a table, or a parts.json of somebody else, or another process of
            this machine is writing there.
        InvalidIndexError: If the index is damaged, or of another library, so that nothing names the files.
    """
    check_flags(dry_run=dry_run)
    home = open_storage(fspath(location), storage_options)
    if kind := find_reference(home):
        raise ConfigError(
            f"{home.url} is a {kind}, whose versions share files: nothing was removed; views have "
            "streamplug view expire, tables the tools of their library"
        )
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(_alone(home))
        own, others = list_named_files(home)
        names = [info.key for info in own]
        if not dry_run:
            remove_files(home, names)
            _remove_empty_directories(home, names)
    return DeleteResult(
        home.url,
        not dry_run,
        names,
        sum(info.size for info in own),
        [info.key for info in others],
    )


@contextmanager
def _alone(home: Storage) -> Iterator[None]:
    """Keep other processes of this machine from writing in a location during a block.

    Raises:
        ConfigError: If one does.
    """
    folder = local_path(home.url)
    with ExitStack() as stack:
        is_alone = stack.enter_context(lock_output(home.url))
        if folder is not None and folder.is_dir():
            is_alone &= stack.enter_context(try_directory_lock(folder))
        if not is_alone:
            raise ConfigError(
                f"{home.url} is being written by another process of this machine: nothing was removed; wait "
                "for its end, or end it"
            )
        yield


def _remove_empty_directories(home: Storage, names: Sequence[str]) -> None:
    root = local_path(home.url)
    if root is None:
        return
    folders = {folder for name in names for folder in Path(root, name).parents}
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        if folder.is_relative_to(root):
            with suppress(OSError):  # it has other files, or is a mount point
                folder.rmdir()
