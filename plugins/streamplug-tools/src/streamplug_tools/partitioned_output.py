"""The location of a data set that is written in parts."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from streamplug.errors import (
    InvalidIndexError,
    NotFound,
    OutputExistsError,
    StreamplugError,
)
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin.location import (
    absolute_location,
    local_path,
    open_storage,
    output_locations,
)
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.file_lock import try_file_lock
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.tempdir import make_temp_root
from streamplug.transfer.timeout_storage import DOWNLOAD_TIMEOUT_SECONDS, TimeoutStorage
from streamplug_tools.dataset_removal import check_empty, remove_dataset
from streamplug_tools.index_merge import merge_indexes, write_index
from streamplug_tools.part_task import (
    ATTEMPTS,
    PLAN_NAME,
    is_whole,
    local_folders,
    part_folder,
    remove_attempts,
)

_LOG = logging.getLogger("streamplug.write")
_RETRIES = 2
_PART_INDEX = re.compile(rf"part-([0-9]{{5,18}})/{re.escape(INDEX_NAME)}")


class PartitionedOutput:
    """The locations of a data set that is written in parts, its plan and its index."""

    def __init__(self, out: Any, options: Mapping[str, Any] | None, *, keep_local: bool) -> None:
        # Workers may have another working directory.
        self.locations = tuple(map(absolute_location, output_locations(out)))
        self._storage: Storage = open_storage(self.locations[-1], options)
        # A local copy of what is uploaded.
        self._copy = open_storage(self.locations[0]) if len(self.locations) > 1 else None
        self._keep_copy = keep_local

    @contextmanager
    def started(self, plan: dict[str, Any], *, exist_ok: bool) -> Iterator[None]:
        """Start a run, and remove its output if it fails before any part is finished."""
        local_folder = local_path(self.locations[-1])
        made_folder = local_folder is not None and not local_folder.exists()
        with _lock_of(self._storage.url) as alone:
            made = self._start(plan, exist_ok=exist_ok, alone=alone)
            try:
                yield
            except Exception:
                if made and not self.finished(plan["parts"]):
                    with suppress(StreamplugError, OSError):  # the first error says more
                        self._remove_output(local_folder if made_folder else None)
                raise

    def remove_attempts(self) -> None:
        """Remove what killed attempts and killed calls have left."""
        remove_attempts(self.locations)
        with suppress(StreamplugError, OSError):  # it does no harm
            for info in list(self._storage.list(f"{ATTEMPTS}/shared-")):
                self._storage.delete(info.key)

    def _remove_output(self, folder: Path | None) -> None:
        self.remove_attempts()
        remove_dataset(self._storage, with_reports=False)  # the error may name one
        local_folder = local_path(self.locations[-1])
        if local_folder is not None:
            for part in local_folder.glob("part-*"):
                part.rmdir()  # raises unless it is empty
        if folder is not None:
            folder.rmdir()

    def _start(self, plan: dict[str, Any], *, exist_ok: bool, alone: bool) -> bool:
        """Write the plan, or check that it equals the existing one; return whether it was written."""
        is_lost = False
        try:
            data = self._storage.read(PLAN_NAME)
            is_lost = not data.strip(b"\0")  # by a loss of power
            existing = json.loads(data)
        except NotFound:
            existing = None
        except (ValueError, RecursionError):
            existing = {}
        if existing == plan:
            return False
        if self._copy is not None and self._copy.exists(INDEX_NAME):
            if not exist_ok:
                raise OutputExistsError(
                    f"{self._copy.url} already holds a data set, or a copy of one; choose another local "
                    "place, or pass exist_ok=True (--exist-ok) to replace it"
                )
            self._copy.delete(INDEX_NAME)
        if existing is not None or self._storage.exists(INDEX_NAME):
            if not (alone or exist_ok):
                raise OutputExistsError(
                    f"{self._storage.url} is being written by another process of this machine, as another "
                    "data set; choose another place, or end that process"
                )
            is_ours = is_lost or _is_plan(existing)
            unfinished = is_ours and not self._storage.exists(INDEX_NAME)
            if unfinished and existing and (done := self.finished(existing["parts"])):
                _LOG.warning(
                    "%s: %d finished parts of a data set that was not completed are replaced by another one",
                    self._storage.url,
                    len(done),
                )
            if not (exist_ok or unfinished):
                other = _difference(existing, plan) if existing else "it was written otherwise"
                raise OutputExistsError(
                    f"{self._storage.url} already holds a data set, or a part of one: {other}; choose "
                    "another place, or pass exist_ok=True (--exist-ok) to replace it"
                )
            remove_dataset(self._storage)
        else:
            check_empty(
                self._storage
            )  # its parts would be taken for ours, and be removed after a failure
        self._storage.delete(INDEX_NAME)
        self._storage.write(PLAN_NAME, json.dumps(plan, sort_keys=True).encode())
        return True

    def finished(self, count: int) -> set[int]:
        """Return the numbers of the finished parts."""
        keys = {info.key for info in self._storage.list("part-")}
        # The count of a damaged plan may be any, so the parts that there are are counted.
        numbers = (int(match[1]) for key in keys if (match := _PART_INDEX.fullmatch(key)))
        folders = local_folders(self.locations, keep_local=self._keep_copy)
        return {
            n
            for n in numbers
            if n < count
            and f"{part_folder(n)}/{INDEX_NAME}" in keys
            and all(is_whole(folder / part_folder(n)) for folder in folders)
        }

    def withdraw_index(self, count: int) -> None:
        """Remove the index of all parts before some of them are written again.

        Raises:
            OutputExistsError: If it has more than the parts.
        """
        _, index = self._read_index()
        folders = {part_folder(number) for number in range(count)}
        for table in index.tables.values() if index else ():
            names = (table.basenames[shard] for shard in range(len(table.bytes)))
            if any(name and name.rpartition("/")[0] not in folders for name in names):
                raise self._changed_error()
        for storage in self._indexed():
            storage.delete(INDEX_NAME)

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
        write_index(index, self._indexed())
        return shards

    def _indexed(self) -> list[Storage]:
        """Return the storages with an index of all parts."""
        kept = [self._copy] if self._copy is not None and self._keep_copy else []
        return [*kept, self._storage]

    def _read_index(self) -> tuple[bytes, Index | None]:
        """Return the index of all parts, and its content; empty and None if it is missing or damaged."""
        with suppress(NotFound, InvalidIndexError):  # damaged by a loss of power
            data = call_with_retries(partial(self._source().read, INDEX_NAME), _RETRIES)
            return data, parse_index(data, self._storage.url)
        return b"", None

    def _source(self) -> Storage:
        if local_path(self._storage.url) is not None:
            return self._storage
        return TimeoutStorage(self._storage, DOWNLOAD_TIMEOUT_SECONDS)

    def _changed_error(self) -> OutputExistsError:
        return OutputExistsError(
            f"{self._storage.url_of(INDEX_NAME)} was changed after the data set was written, as by "
            "append=True, and is left as it is; choose another location, or remove the data set"
        )


@contextmanager
def _lock_of(url: str) -> Iterator[bool]:
    """Lock a location, and yield whether no other process of this machine holds the lock."""
    path = make_temp_root() / f"writing-{xxhash.xxh3_64_hexdigest(url.encode())}.lock"
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


def _is_plan(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and content.keys() >= {"parts_digest", "columns"}
        and isinstance(content.get("parts"), int)
    )


def _difference(existing: Any, plan: dict[str, Any]) -> str:
    if not isinstance(existing, dict):
        return f"its {PLAN_NAME} is damaged"
    names = [name for name in plan if existing.get(name) != plan[name] and name != "parts_digest"]
    if not names:
        return "it is made of other samples, or in another way"
    return ", ".join(
        f"{name} was {existing.get(name)!r:.80}, not {plan[name]!r:.80}" for name in names
    )
