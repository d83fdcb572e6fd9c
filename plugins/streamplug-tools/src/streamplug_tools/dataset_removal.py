"""Removal of a data set, without removing any other file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from streamplug_files import PLAN_NAME

from streamplug.errors import ConfigError, InvalidIndexError, NotFound, OutputExistsError
from streamplug.index import INDEX_NAME, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin import local_path
from streamplug.transfer import STATE_DIR
from streamplug.types import ObjectInfo
from streamplug.write import delete_durably, quote_names
from streamplug_tools.part_task import ATTEMPTS

REMOVED = "removed"
"""Key of a plan that names files whose removal has begun."""

COPIED = "copied"
"""Key of a plan that names the files of a copy that is not whole."""

_PART_FILE = re.compile(r"part-([0-9]{5,18})/(?:shard\.[0-9]+\.[^/]+|index\.[^/]+)")
_REPORT = re.compile(r"failures/part-([0-9]{5,18})\.json")
"""Names of the reports of bad samples that are beside parts."""
_OLD_INDEX_NAME = "index.streamplug"  # of earlier versions
APPENDED_PREFIX = "append-"
"""Start of the names of folders with appended samples; a digest of 16 digits follows."""
_APPENDED_FILE = re.compile(
    rf"{APPENDED_PREFIX}[0-9a-f]{{16}}/(?:{re.escape(PLAN_NAME)}|{re.escape(INDEX_NAME)}"
    rf"|{re.escape(ATTEMPTS)}/.+|part-[0-9]{{5,18}}/(?:shard\.[0-9]+\.[^/]+|index\.[^/]+))"
)
APPEND_LOCK = "append.lock"
"""Name of the file that is there while a call replaces the index."""
_STATE_FOLDERS = (STATE_DIR, ATTEMPTS)
_MAX_NAMES_IN_ERROR = 3
_METADATA_NAMES = frozenset((APPEND_LOCK, INDEX_NAME, PLAN_NAME, _OLD_INDEX_NAME))


def remove_dataset(storage: Storage, *, with_reports: bool = True) -> None:
    """Remove a data set or its parts, or raise OutputExistsError if there are other files."""
    remove_files(storage, list_dataset(storage, with_reports=with_reports))


def list_dataset(storage: Storage, *, with_reports: bool = True) -> list[str]:
    """Return the files of a data set or its parts, or raise OutputExistsError if there are others.

    Its files are the indexes, the shards in them, files named like those of parts, the state of an unfinished
    run or removal, and the reports of failed samples unless `with_reports` is False.
    """
    keys = [info.key for info in storage.list("")]
    indexed = {*_indexed_names(storage, keys), *_planned_names(storage)}
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


def list_named_files(storage: Storage) -> tuple[list[ObjectInfo], list[ObjectInfo]]:
    """Return the files that the index or the plan of a data set names, and the others in its directory.

    Raises:
        NotFound: If there is neither, nor what an append that was cut off has left.
        ConfigError: If there is a file of the plan's name that is none.
        InvalidIndexError: If the index is damaged, or is one of another library.
    """
    found = list(storage.list(""))
    keys = [info.key for info in found]
    plan = read_plan(storage)
    if INDEX_NAME in keys:
        parse_index(storage.read(INDEX_NAME), storage.url_of(INDEX_NAME))  # so it is ours
    elif not is_plan(plan) and not any(map(_APPENDED_FILE.fullmatch, keys)):
        raise NotFound(
            f"{storage.url} has neither an {INDEX_NAME} nor a {PLAN_NAME} of streamplug: there is no data set"
        )
    if plan is None:
        plan = {}
    elif not is_plan(plan):
        raise ConfigError(
            f"{storage.url_of(PLAN_NAME)} is damaged, or no file of streamplug, and would be overwritten: "
            "nothing was removed; move it away"
        )
    named = {*_indexed_names(storage, keys), *_planned_names(storage)}
    parts = plan.get("parts", 0)
    num_parts = parts if isinstance(parts, int) else 0
    own: list[ObjectInfo] = []
    others: list[ObjectInfo] = []
    for info in found:
        key = info.key
        part = _PART_FILE.fullmatch(key) or _REPORT.fullmatch(key)
        is_named = key in named or (_is_own(key) if part is None else int(part[1]) < num_parts)
        (own if is_named and not _is_linked(storage, key) else others).append(info)
    return own, others


def remove_files(storage: Storage, keys: Sequence[str]) -> None:
    """Remove the files that `list_dataset` or `list_named_files` returned."""
    # Without it, they would be somebody else's if the removal is cut off once the index is gone.
    if not all(map(_is_own, keys)) or (keys and PLAN_NAME not in keys):
        named = [key for key in keys if key not in _METADATA_NAMES]
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
    _refuse(storage, (key for key in keys if key.partition("/")[0] not in _STATE_FOLDERS))


def check_only_appended(storage: Storage) -> None:
    """Raise OutputExistsError if there are other files than those of appends, which may be at work."""
    keys = (info.key for info in storage.list(""))
    ours = (APPEND_LOCK, INDEX_NAME)
    others = (key for key in keys if key not in ours and not _APPENDED_FILE.fullmatch(key))
    _refuse(storage, others)


def _refuse(storage: Storage, keys: Iterable[str]) -> None:
    others = map(repr, keys)
    if names := ", ".join(islice(others, _MAX_NAMES_IN_ERROR)):
        raise OutputExistsError(
            f"{storage.url} holds other files, such as {names}; choose another location, or move them away"
        )


def _is_own(key: str) -> bool:
    top = key.partition("/")[0]
    is_part = _PART_FILE.fullmatch(key) or _APPENDED_FILE.fullmatch(key)
    return key in _METADATA_NAMES or top in _STATE_FOLDERS or is_part is not None


def _indexed_names(storage: Storage, keys: Sequence[str]) -> Iterator[str]:
    """Yield the files in the index, and the metadata files of the parts that it was merged from."""
    if INDEX_NAME not in keys:
        return
    try:
        index = parse_index(storage.read(INDEX_NAME), storage.url_of(INDEX_NAME))
    except (InvalidIndexError, NotFound):  # so no file is known to be in it
        return
    yield from (file.basename for file in index.value_sizes)
    for files in index.tables.values():
        for shard in range(len(index)):
            name = files.basenames[shard]
            yield name
            while name := name.rpartition("/")[0]:
                yield from (f"{name}/{metadata}" for metadata in _METADATA_NAMES)


def _planned_names(storage: Storage) -> Iterator[str]:
    """Yield the files whose removal was cut off, or those of an unfinished copy."""
    plan = read_plan(storage)
    for what in (REMOVED, COPIED):
        names = plan.get(what) if isinstance(plan, dict) else None
        if isinstance(names, list):
            yield from (name for name in names if isinstance(name, str))


def read_plan(storage: Storage) -> Any:
    """Return the plan of a location, None without one; empty if it is damaged."""
    try:
        data = storage.read(PLAN_NAME)
        return json.loads(data) if data.strip(b"\0") else {REMOVED: []}  # after a loss of power
    except NotFound:
        return None
    except (ValueError, RecursionError):
        return {}


def is_plan(plan: Any) -> bool:
    """Return whether a plan is that of parts, of a copy, of a removal that was cut off, or lost."""
    if not isinstance(plan, dict):
        return False
    is_of_parts = plan.keys() >= {"parts_digest", "columns"} and isinstance(plan.get("parts"), int)
    return is_of_parts or REMOVED in plan or COPIED in plan


def _is_linked(storage: Storage, key: str) -> bool:
    """Return whether a file is outside of the storage, behind a symbolic link to a directory."""
    root = local_path(storage.url)
    if root is None:
        return False
    folder = Path(root, key).parent
    return not folder.resolve().is_relative_to(root.resolve())
