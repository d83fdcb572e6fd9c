"""Removal of a data set that is replaced, without removing any other file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from streamplug_files import PLAN_NAME

from streamplug.errors import InvalidIndexError, NotFound, OutputExistsError
from streamplug.index import INDEX_NAME, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin import local_path
from streamplug.transfer import STATE_DIR
from streamplug.write import delete_durably, quote_names
from streamplug_tools.part_task import ATTEMPTS

REMOVED = "removed"
"""Key of a plan that names files whose removal has begun."""

_PART_FILE = re.compile(r"part-[0-9]{5,}/(?:shard\.[0-9]+\.[^/]+|index\.[^/]+)")
_REPORT = re.compile(r"failures/part-[0-9]{5,}\.json")
"""Names of the reports of failed samples that streamplug-datasets writes beside parts."""
_OLD_INDEX_NAME = "index.streamplug"  # of earlier versions
_STATE_FOLDERS = (STATE_DIR, ATTEMPTS)
_MAX_NAMES_IN_ERROR = 3
_METADATA_NAMES = frozenset((INDEX_NAME, PLAN_NAME, _OLD_INDEX_NAME))


def remove_dataset(storage: Storage, *, with_reports: bool = True) -> None:
    """Remove a data set or its parts, or raise OutputExistsError if there are other files."""
    remove_files(storage, list_dataset(storage, with_reports=with_reports))


def list_dataset(storage: Storage, *, with_reports: bool = True) -> list[str]:
    """Return the files of a data set or its parts, or raise OutputExistsError if there are others.

    Its files are the indexes, the shards in them, files named like those of parts, the state of an unfinished
    run or removal, and the reports of failed samples unless `with_reports` is False.
    """
    keys = [info.key for info in storage.list("")]
    indexed = {*_indexed_names(storage, keys), *_names_to_remove(storage, keys)}
    others = [
        key
        for key in keys
        if not (_is_own(key) or key in indexed or (with_reports and _REPORT.fullmatch(key)))
        or _is_linked(storage, key)
    ]
    if others:
        raise OutputExistsError(
            f"{storage.url} holds files that are not of its data set: {quote_names(others)}; nothing was "
            "removed: remove or move them, or choose another location"
        )
    return keys


def remove_files(storage: Storage, keys: Sequence[str]) -> None:
    """Remove the files that `list_dataset` returned."""
    # Without it, they would be somebody else's if the removal is cut off once the index is gone.
    named = [key for key in keys if not _is_own(key)]
    if named or (keys and PLAN_NAME not in keys):
        storage.write(PLAN_NAME, json.dumps({REMOVED: named}).encode())
        keys = [*keys, PLAN_NAME]
    # The index is deleted first. The plan is last: it identifies the leftovers of a removal that was cut off.
    steps = {INDEX_NAME: 0, PLAN_NAME: 2}
    for step in range(3):
        delete_durably(storage, *(key for key in keys if steps.get(key, 1) == step))


def check_empty(storage: Storage) -> None:
    """Raise OutputExistsError if there are files, other than the state of streamplug itself.

    For a location without an index or a plan, whose files are therefore those of somebody else.
    """
    keys = (info.key for info in storage.list(""))
    others = (repr(key) for key in keys if key.partition("/")[0] not in _STATE_FOLDERS)
    if names := ", ".join(islice(others, _MAX_NAMES_IN_ERROR)):
        raise OutputExistsError(
            f"{storage.url} holds other files, such as {names}; choose another location, or move them away"
        )


def _is_own(key: str) -> bool:
    top = key.partition("/")[0]
    return key in _METADATA_NAMES or top in _STATE_FOLDERS or _PART_FILE.fullmatch(key) is not None


def _indexed_names(storage: Storage, keys: Sequence[str]) -> Iterator[str]:
    """Yield the files in the index, and the metadata files of the parts that it was merged from."""
    if INDEX_NAME not in keys:
        return
    try:
        index = parse_index(storage.read(INDEX_NAME), storage.url_of(INDEX_NAME))
    except (InvalidIndexError, NotFound):  # so no file is known to be in it
        return
    for files in index.tables.values():
        for shard in range(len(index)):
            name = files.basenames[shard]
            yield name
            if folder := name.rpartition("/")[0]:
                yield from (f"{folder}/{name}" for name in _METADATA_NAMES)


def _names_to_remove(storage: Storage, keys: Sequence[str]) -> Iterator[str]:
    """Yield the files whose removal was cut off."""
    with suppress(NotFound, ValueError, RecursionError):
        plan = json.loads(storage.read(PLAN_NAME)) if PLAN_NAME in keys else None
        if isinstance(plan, dict) and isinstance(plan.get(REMOVED), list):
            yield from (name for name in plan[REMOVED] if isinstance(name, str))


def _is_linked(storage: Storage, key: str) -> bool:
    """Return whether a file is outside of the storage, behind a symbolic link to a directory."""
    root = local_path(storage.url)
    if root is None:
        return False
    folder = Path(root, key).parent
    return not folder.resolve().is_relative_to(root.resolve())
