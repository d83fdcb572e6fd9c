"""The location of a data set that is written in parts."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import xxhash
from streamplug_files import PLAN_NAME

from streamplug.errors import (
    InvalidIndexError,
    NotFound,
    OutputExistsError,
    StreamplugError,
)
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin import (
    absolute_location,
    local_path,
    open_storage,
    output_locations,
)
from streamplug.transfer import (
    DOWNLOAD_TIMEOUT_SECONDS,
    TimeoutStorage,
    call_with_retries,
    make_temp_root,
    map_disk_errors,
    map_threads,
    try_file_lock,
)
from streamplug_tools.dataset_removal import (
    COPIED,
    REMOVED,
    check_empty,
    is_plan,
    list_dataset,
    read_plan,
    remove_dataset,
    remove_files,
)
from streamplug_tools.index_merge import merge_indexes, write_index
from streamplug_tools.part_files import is_copied, is_whole_in, kept_copy, part_folder
from streamplug_tools.part_identity import changed_files
from streamplug_tools.part_task import ATTEMPTS, remove_attempts

_LOG = logging.getLogger("streamplug.write")
_MAX_READS_IN_FLIGHT = 16
_PART_INDEX = re.compile(rf"part-([0-9]{{5,18}})/{re.escape(INDEX_NAME)}")


class PartitionedOutput:
    """The locations of a data set that is written in parts, its plan and its index."""

    def __init__(self, out: Any, options: Mapping[str, Any] | None, *, keep_local: bool) -> None:
        # Workers may have another working directory.
        self.locations = tuple(map(absolute_location, output_locations(out)))
        self.storage: Storage = open_storage(self.locations[-1], options)
        self._copy = kept_copy(self.locations, keep_local=keep_local)
        copies = [] if self._copy is None else [open_storage(self.locations[0])]
        self._homes = [*copies, self.storage]

    @contextmanager
    def started(self, plan: dict[str, Any], *, exist_ok: bool, keep: bool) -> Iterator[None]:
        """Start a run, and remove its output if it fails before any part is finished.

        With `exist_ok`, a finished data set of the same plan is replaced, too, unless it is to be kept.
        """
        folders = [local_path(home.url) for home in self._homes]
        made_folders = [folder for folder in folders if folder is not None and not folder.exists()]
        with ExitStack() as stack:
            locked = [stack.enter_context(lock_output(home.url)) for home in self._homes]
            again = exist_ok and not keep and self.storage.exists(INDEX_NAME)
            made = self._start(plan, exist_ok=exist_ok, again=again, alone=all(locked))
            try:
                yield
            except Exception:
                if self.storage in made and not self._at_home(plan["parts"]):
                    self.remove_attempts()
                    for home in made:
                        with suppress(StreamplugError, OSError):  # the first error says more
                            _remove_output(home, made_folders)
                raise

    def remove_attempts(self) -> None:
        """Remove what killed attempts and killed calls have left."""
        with suppress(StreamplugError, OSError):  # it does no harm
            remove_attempts(self.locations)
            for info in list(self.storage.list(f"{ATTEMPTS}/shared-")):
                self.storage.delete(info.key)

    def _start(
        self, plan: dict[str, Any], *, exist_ok: bool, again: bool, alone: bool
    ) -> list[Storage]:
        """Write the plan, or check that it equals the existing ones; return where it was written."""
        old: dict[Storage, list[str]] = {}
        for home in self._homes:
            existing = read_plan(home)
            if existing == plan and not again:
                continue
            changed = None if again or not alone else changed_files(existing, plan)
            if changed is not None and changed.isdisjoint(self._at_home(plan["parts"])):
                old[home] = []  # continue: those parts are still to be written
            else:
                old[home] = _replaceable_files(home, existing, plan, exist_ok=exist_ok, alone=alone)
        for home, keys in old.items():  # once all are checked
            remove_files(home, keys)
            home.write(PLAN_NAME, json.dumps(plan, sort_keys=True).encode())
        return list(old)

    def check_unfinished(self) -> None:
        """Raise OutputExistsError if there is an index."""
        if self.storage.exists(INDEX_NAME):
            raise OutputExistsError(
                f"{self.storage.url} already holds the finished data set of the same call; choose another "
                "place, or pass exist_ok=True (--exist-ok) to write it again"
            )

    def finished(self, count: int) -> tuple[set[int], set[int]]:
        """Return the numbers of the finished parts, and of those that only the local copy lacks."""
        done = self._at_home(count)
        if self._copy is None:
            return done, set()
        numbers, check = sorted(done), partial(is_copied, self.storage, self._copy)
        copied = map_threads(check, numbers, _MAX_READS_IN_FLIGHT)
        missing = {number for number, is_there in zip(numbers, copied) if not is_there}
        return done - missing, missing

    def _at_home(self, count: int) -> set[int]:
        keys = {info.key for info in self.storage.list("part-")}
        numbers = (
            number for number in range(count) if f"{part_folder(number)}/{INDEX_NAME}" in keys
        )
        return {number for number in numbers if is_whole_in(self.storage, number)}

    def withdraw_index(self, count: int, *, only_of_copy: bool) -> None:
        """Remove the index of all parts before some of them are written again, or only copied again.

        Raises:
            OutputExistsError: If it has more than the parts.
        """
        _, index = self._read_index()
        folders = {part_folder(number) for number in range(count)}
        for table in index.tables.values() if index else ():
            names = (table.basenames[shard] for shard in range(len(table.bytes)))
            if any(name and name.rpartition("/")[0] not in folders for name in names):
                raise self._changed_error()
        for home in self._homes[:-1] if only_of_copy else self._homes:
            home.delete(INDEX_NAME)

    def complete(self, count: int) -> int:
        """Write the index of all parts, and return the number of its shards.

        Raises:
            OutputExistsError: If there is another index, with more than the parts.
        """
        source = self._source()
        index, shards = merge_indexes([(source, part_folder(number)) for number in range(count)])
        existing, entries = self._read_index()
        if entries and existing != index:
            raise self._changed_error()
        write_index(index, self._homes)
        return shards

    def _read_index(self) -> tuple[bytes, Index | None]:
        """Return the index of all parts, and its content; empty and None if it is missing or damaged."""
        with suppress(NotFound, InvalidIndexError):  # damaged by a loss of power
            data = call_with_retries(partial(self._source().read, INDEX_NAME))
            return data, parse_index(data, self.storage.url)
        return b"", None

    def _source(self) -> Storage:
        if local_path(self.storage.url) is not None:
            return self.storage
        return TimeoutStorage(self.storage, DOWNLOAD_TIMEOUT_SECONDS)

    def _changed_error(self) -> OutputExistsError:
        return OutputExistsError(
            f"{self.storage.url_of(INDEX_NAME)} was changed after the data set was written, as by "
            "append=True, and is left as it is; choose another location, or remove the data set"
        )


@contextmanager
def lock_output(url: str) -> Iterator[bool]:
    """Lock a location, and yield whether no other process of this machine holds the lock."""
    local = local_path(url)
    url = url if local is None else os.path.realpath(local)  # links lead to the same place
    digest = xxhash.xxh3_64_hexdigest(url.encode(errors="surrogateescape"))
    path = make_temp_root() / f"writing-{digest}.lock"
    with ExitStack() as stack:
        with map_disk_errors(path):
            alone = stack.enter_context(try_file_lock(path))
        try:
            yield alone
        finally:
            if alone:
                with suppress(OSError):
                    path.unlink()
    with suppress(OSError):  # other locks exist
        path.parent.rmdir()


def _replaceable_files(
    home: Storage, existing: Any, plan: dict[str, Any], *, exist_ok: bool, alone: bool
) -> list[str]:
    """Return the files of another data set that is to be replaced; raise if it must not be."""
    has_index = home.exists(INDEX_NAME)
    if existing is None and not has_index:
        check_empty(home)  # its parts would be taken for ours, and be removed after a failure
        return []
    if not (alone or exist_ok):
        raise OutputExistsError(
            f"{home.url} is being written by another process of this machine, as another data set; "
            "choose another place, or end that process"
        )
    unfinished = not has_index and is_plan(existing)
    done = sum(_PART_INDEX.fullmatch(info.key) is not None for info in home.list("part-"))
    is_empty = unfinished and not done and COPIED not in existing
    if not (exist_ok or is_empty or (unfinished and REMOVED in existing)):
        other = _difference(existing, plan) if existing else "it was written otherwise"
        raise OutputExistsError(
            f"{home.url} already holds a data set, or a part of one: {other}; choose another place, or "
            "pass exist_ok=True (--exist-ok) to replace it"
        )
    if unfinished and done:
        _LOG.warning(
            "%s: %d finished parts of a data set that was not completed are replaced by another one",
            home.url,
            done,
        )
    return list_dataset(home)


def _remove_output(home: Storage, made_folders: Sequence[Path]) -> None:
    remove_dataset(home, with_reports=False)  # the error may name one
    folder = local_path(home.url)
    if folder is not None:
        for part in folder.glob("part-*"):
            part.rmdir()  # raises unless it is empty
        if folder in made_folders:
            folder.rmdir()


def _difference(existing: Any, plan: dict[str, Any]) -> str:
    if not isinstance(existing, dict):
        return f"its {PLAN_NAME} is damaged"
    if REMOVED in existing:
        return "the removal of an earlier one was cut off"
    if COPIED in existing:
        return "it is an unfinished copy of another one"
    differences = [
        _describe_difference(name, existing, plan)
        for name in plan
        if existing.get(name) != plan[name]
    ]
    return ", ".join(differences) or "it is to be written again"


def _describe_difference(name: str, existing: dict[str, Any], plan: dict[str, Any]) -> str:
    old, new = existing.get(name), plan[name]
    if name == "parts_digest":
        return "it is made of other samples or columns"
    if name == "files":
        numbers = sorted(changed_files({**plan, name: old}, plan) or ())
        return f"the files of parts {numbers!r:.80} had another size or time of modification"
    if name == "function":
        return (
            "its make_samples= had other code, or used other values (if the finished parts are right "
            f"nonetheless, set make_samples.identity = {old!r} to keep them)"
        )
    return f"{name} was {old!r:.80}, not {new!r:.80}"
