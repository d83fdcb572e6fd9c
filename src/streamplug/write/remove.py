"""Removes a data set that another one replaces: what is its own, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamplug.errors import InvalidIndexError, NotFound, OutputExistsError
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin.location import local_path
from streamplug.transfer.file_lock import STATE_DIR
from streamplug.write.part_task import ATTEMPTS, PLAN_NAME

_OF_PART = re.compile(r"part-[0-9]{5,}/(?:shard\.[0-9]+\.[^/]+|index\.[^/]+)")
_OF_SET = frozenset((INDEX_NAME, PLAN_NAME))
_SHOWN = 3


def remove_dataset(storage: Storage) -> None:
    """Remove the data set that is in a place, or the parts of one.

    Its own are its indexes, the shards that these name, what parts of sets are called, and what is kept of
    how far they are.

    Raises:
        OutputExistsError: If there is anything else; then nothing is removed.
        StorageError: If it cannot be removed.
    """
    keys = [info.key for info in storage.list("")]
    named = set(_named(storage, keys))
    others = [key for key in keys if not (_is_own(key) or key in named) or _leaves(storage, key)]
    if others:
        shown = ", ".join(repr(key) for key in others[:_SHOWN])
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        raise OutputExistsError(
            f"{storage.url} holds files that are not of the data set there: {shown}{more}; it is left as it "
            "is: remove or move them, or choose another place"
        )
    # The plan goes last: by it, what is left of a removal that was killed is known to be of a set.
    for key in sorted(keys, key=lambda key: (key == PLAN_NAME, key != INDEX_NAME)):
        storage.delete(key)


def _is_own(key: str) -> bool:
    top = key.partition("/")[0]
    return key in _OF_SET or top in (STATE_DIR, ATTEMPTS) or _OF_PART.fullmatch(key) is not None


def _named(storage: Storage, keys: Sequence[str]) -> Iterator[str]:
    """Yield the files that the index names, and those of sets that it was merged from."""
    index = _index(storage) if INDEX_NAME in keys else None
    if index is None:
        return
    for files in index.tables.values():
        for shard in range(len(index)):
            name = files.basenames[shard]
            yield name
            if folder := name.rpartition("/")[0]:
                yield from (f"{folder}/{each}" for each in _OF_SET)


def _index(storage: Storage) -> Index | None:
    try:
        return parse_index(storage.read(INDEX_NAME), storage.url_of(INDEX_NAME))
    except (InvalidIndexError, NotFound):  # it names nothing that could be believed
        return None


def _leaves(storage: Storage, key: str) -> bool:
    """Say whether a file is elsewhere, behind a link to a directory."""
    near = local_path(storage.url)
    if near is None:
        return False
    folder = Path(near, key).parent
    return not folder.resolve().is_relative_to(near.resolve())
