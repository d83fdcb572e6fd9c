"""Writing of a data set in parts, several at once; the same call resumes a killed run.

Each part is a data set in its own folder, and complete when it has an index; the index of all parts is
written last. The bytes of a part do not depend on the worker that writes it.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from streamplug.config import check_flags
from streamplug.errors import (
    ConfigError,
    InvalidIndexError,
    NotFound,
    OutputExistsError,
    StreamplugError,
)
from streamplug.index import INDEX_NAME, parse_index
from streamplug.index.hashes import chosen_hashes
from streamplug.interfaces import Engine, Storage
from streamplug.interfaces.storage import public_url
from streamplug.plugin.location import (
    absolute_location,
    join,
    local_path,
    open_storage,
    output_locations,
)
from streamplug.plugin.registry import make as make_plugin
from streamplug.plugin.registry import registrations
from streamplug.plugin_kit.tasks import run_tasks
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.file_lock import try_file_lock
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.tempdir import TemporaryDirectory, make_temp_root
from streamplug.transfer.timeout_storage import DOWNLOAD_TIMEOUT_SECONDS, TimeoutStorage
from streamplug.write.writer import Writer
from streamplug_tools.dataset_removal import check_empty, remove_dataset
from streamplug_tools.index_merge import merge_indexes, write_index
from streamplug_tools.local_engine import Local
from streamplug_tools.part_counts import watch_counts
from streamplug_tools.part_identity import make_plan
from streamplug_tools.part_task import (
    ATTEMPTS,
    PLAN_NAME,
    MakeSamples,
    PartTask,
    is_whole,
    local_folders,
    part_folder,
    remove_attempts,
)

_LOG = logging.getLogger("streamplug.write")
_RETRIES = 2
_PART_INDEX = re.compile(rf"part-([0-9]{{5,18}})/{re.escape(INDEX_NAME)}")


def write_parts(
    make_samples: MakeSamples,
    parts: Sequence[Any],
    *,
    columns: Mapping[str, str],
    out: str | PathLike[str] | tuple[str | PathLike[str], str],
    engine: str | Engine = "local",
    processes: int | None = None,
    exist_ok: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
    on_counts: Callable[[NDArray[np.int64]], None] | None = None,
    batched: bool = False,
    **options: Any,
) -> int:
    """Write a data set from parts, such as files to be converted, on this machine or a cluster.

    The samples of a part follow those of the part before. Shards never span parts, so each part should fill
    several shards. If a run is killed, the same call writes the missing parts; the bytes are those of an
    uninterrupted run if `make_samples` yields the same samples.

    Finished parts of a call with the same arguments are kept, also with `exist_ok`. The code of functions is
    not compared: after a change of `make_samples`, remove the data set, or choose another `out`.

    A call with other arguments replaces the output of an unfinished run, unless that run is still active on
    this machine. A run that fails before any part is finished removes its output.

    Args:
        make_samples: Called with one of `parts`, yields its samples: the value of each column by its name. It
            is sent to the workers by cloudpickle; modules that it uses must be installed there.
        parts: Input of each part; a path or a JSON value, such as a name or a number.
        columns: Encoding of each column by its name.
        out: A local path, a URL, or a pair (local path, URL), which all workers must share.
        engine: ``"local"`` for processes of this machine, or the name of an engine plugin, such as
            ``"ray:auto"``, or an engine.
        processes: Number of processes of the engine ``"local"``; None for one per processor, 0 to write in
            this process.
        exist_ok: Whether to remove another data set in `out`, which must contain no other files. Another one
            is one of other parts, columns or options, or of a single writer. With the same, it is kept.
        storage_options: Options of the storage that files are uploaded to.
        on_progress: Called with the numbers of finished and of all parts after each part.
        on_counts: Called from a thread ten times a second with the samples and raw bytes of each part so far,
            shape (parts, 2). They are -1 where a part is finished and they are not known: it was written by
            an earlier run or on another machine.
        batched: Whether `make_samples` yields batches: the values of each column, as for
            `Writer.write_batch`.
        **options: Further arguments of `Writer`.

    Returns:
        Number of shards of the data set.

    Raises:
        OutputExistsError: If `out` has another finished data set and not `exist_ok`, or other files, or
            another run of this machine is writing there.
        ConfigError: If an argument is invalid.
        WriterError: If `make_samples` raises, or a sample cannot be written.
    """
    if not parts:
        raise ConfigError("parts= is empty: there is nothing to write")
    workers = _engine(engine, processes)
    check_writer_options(columns, options)
    options["hashes"] = chosen_hashes(options.get("hashes"))
    output = _PartitionedOutput(out, storage_options, keep_local=options.get("keep_local", False))
    plan = make_plan(parts, columns, options, batched=batched)
    task = PartTask(
        make_samples,
        tuple(parts),
        output.locations,
        dict(columns),
        plan,
        storage_options,
        options,
        registrations(),
        batched=batched,
    )
    with output.started(plan, exist_ok=exist_ok):
        done = output.finished(len(parts))
        pending = [number for number in range(len(parts)) if number not in done]
        if exist_ok and not pending:
            _LOG.warning(
                "%s is kept as it is: it was written with the same arguments, of which the code of functions "
                "is not compared; remove it to write it again",
                public_url(output.locations[-1]),
            )
        on_progress(len(done), len(parts))
        with (
            _watch(on_counts, len(parts), done) as (path, counts),
            _share(task, workers) as shared,
            run_tasks(workers, replace(shared, counts=path), pending) as finished,
        ):
            for count, number in enumerate(finished, len(done) + 1):
                if not counts[number, 0]:
                    counts[number] = -1
                on_progress(count, len(parts))
    output.remove_attempts()
    return output.complete(len(parts))


@contextmanager
def _share(task: PartTask, workers: Engine) -> Iterator[PartTask]:
    """Make what `make_samples` has on this machine visible to the workers of a cluster during a block."""
    share = getattr(task.make_samples, "share", None)
    if share is None or isinstance(workers, Local):
        yield task
        return
    location = join(task.locations[-1], ATTEMPTS, f"shared-{uuid.uuid4().hex}")
    try:
        yield replace(task, make_samples=share(location, task.storage_options))
    finally:
        with suppress(StreamplugError, OSError):
            storage = open_storage(location, task.storage_options)
            for info in list(storage.list("")):
                storage.delete(info.key)
        folder = local_path(location)
        if folder is not None:
            with suppress(OSError):  # others may have files there
                folder.rmdir()
                folder.parent.rmdir()


def check_writer_options(columns: Mapping[str, str], options: Mapping[str, Any]) -> None:
    """Raise what writers of parts would raise, before anything is removed or a plan is written.

    Args:
        columns: Encoding of each column by its name.
        options: Further arguments of `Writer`.

    Raises:
        StreamplugError: If a writer does not take them.
    """
    quick = {"durable": False, "progress_bar": False}
    check_flags(**{name: options.get(name, value) for name, value in quick.items()})
    options = {**options, **quick}
    with TemporaryDirectory() as folder, Writer(columns=columns, out=folder / "part", **options):
        pass  # an empty data set is written


@contextmanager
def _watch(
    on_counts: Callable[[NDArray[np.int64]], None] | None, parts: int, done: set[int]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    if on_counts is None:
        yield "", np.zeros((parts, 2), np.int64)
        return
    with watch_counts(parts, on_counts) as (path, counts):
        counts[sorted(done)] = -1
        yield path, counts


def _engine(engine: str | Engine, processes: int | None) -> Engine:
    if processes is not None:
        if engine != "local":
            raise ConfigError(
                f"processes={processes} is for the engine 'local'; engine={engine!r:.80} has its own workers"
            )
        engine = f"local:{processes}"
    if isinstance(engine, str):
        engine = make_plugin("engine", engine)
    if not isinstance(engine, Engine):
        raise ConfigError(f"engine={engine!r:.80}: expected the name of an engine, or an engine")
    return engine


class _PartitionedOutput:
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
            if self._copy is not None and self._keep_copy:
                self._copy.delete(INDEX_NAME)  # it is written again when the copy is complete
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

    def complete(self, count: int) -> int:
        """Write the index of all parts, and return the number of its shards.

        Raises:
            OutputExistsError: If there is another index, with more than the parts.
        """
        is_local = local_path(self._storage.url) is not None
        source = (
            self._storage if is_local else TimeoutStorage(self._storage, DOWNLOAD_TIMEOUT_SECONDS)
        )
        index, shards = merge_indexes([(source, part_folder(number)) for number in range(count)])
        with suppress(NotFound, InvalidIndexError):  # or damaged by a loss of power
            existing = call_with_retries(partial(source.read, INDEX_NAME), _RETRIES)
            if existing != index and parse_index(existing, source.url):
                raise OutputExistsError(
                    f"{self._storage.url_of(INDEX_NAME)} was changed after the data set was written, as by "
                    "append=True, and is left as it is; choose another location, or remove the data set"
                )
        kept = [self._copy] if self._copy is not None and self._keep_copy else []
        write_index(index, [*kept, self._storage])
        return shards


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
