"""Writing of a data set in parts, several at once; the same call resumes a killed run.

Each part is a data set in its own folder, and complete when it has an index; the index of all parts is
written last. The bytes of a part do not depend on the worker that writes it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.config import check_flags
from streamplug.errors import (
    ConfigError,
    StreamplugError,
)
from streamplug.index import chosen_hashes
from streamplug.interfaces import Engine, public_url
from streamplug.plugin import (
    join,
    local_path,
    open_storage,
    registrations,
)
from streamplug.plugin import make as make_plugin
from streamplug.transfer import TemporaryDirectory
from streamplug.write import Writer
from streamplug_tools.local_engine import Local
from streamplug_tools.part_counts import watch_counts
from streamplug_tools.part_identity import declared_identity, make_plan
from streamplug_tools.part_task import (
    ATTEMPTS,
    MakeSamples,
    PartTask,
)
from streamplug_tools.partitioned_output import PartitionedOutput
from streamplug_tools.tasks import run_tasks

_LOG = logging.getLogger("streamplug.write")


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
    several shards.

    If a run is killed, the same call writes the missing parts; the bytes are those of an uninterrupted run if
    `make_samples` yields the same samples. A call is the same if it has equal parts, columns and options, the
    files that finished parts name have the same sizes and times of modification, and `make_samples` has the
    same code and uses the same values. Any other one is refused while there are finished parts.

    What cannot be compared is the content of files at URLs and in subdirectories of parts, code of installed
    packages and of modules that the function imports itself, and what is in values that cannot be pickled,
    such as open files and generators. A `make_samples` with an attribute
    ``identity``, a text, says by it what it does: it is compared in place of its code, values and files,
    and a finished data set of the same identity is kept.

    A run that fails before any part is finished removes its output.

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
        exist_ok: Whether to remove the data set in `out`, finished or of another call, which must contain no
            other files. An unfinished run of the same call is continued all the same.
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
        OutputExistsError: If `out` has a finished data set, or parts of another call, and not `exist_ok`; or
            other files; or another run of this machine is writing there.
        ConfigError: If an argument is invalid.
        WriterError: If `make_samples` raises, or a sample cannot be written.
    """
    check_flags(exist_ok=exist_ok, batched=batched)
    if isinstance(parts, (str, bytes, Mapping, AbstractSet)) or not hasattr(parts, "__len__"):
        raise ConfigError(
            f"parts= takes a list, got {type(parts).__name__}: give list(…) of it, or [it]"
        )
    if not len(parts):
        raise ConfigError("parts= is empty: there is nothing to write")
    workers = _engine(engine, processes)
    check_writer_options(columns, options)
    options["hashes"] = chosen_hashes(options.get("hashes"))
    output = PartitionedOutput(out, storage_options, keep_local=options.get("keep_local", False))
    plan = make_plan(parts, make_samples, columns, options, batched=batched)
    keep = declared_identity(make_samples) is not None
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
    with output.started(plan, exist_ok=exist_ok, keep=keep):
        done, uncopied = output.finished(len(parts))
        pending = [number for number in range(len(parts)) if number not in done]
        if not (pending or keep):
            output.check_unfinished()
        if exist_ok and not pending:
            _LOG.warning(
                "%s is kept as it is: it was written with the same arguments; remove it to write it again",
                public_url(output.locations[-1]),
            )
        if pending:
            # It may name other bytes than those written again.
            output.withdraw_index(len(parts), only_of_copy=uncopied.issuperset(pending))
        on_progress(len(done), len(parts))
        check = getattr(make_samples, "watch_parts", lambda _: ignore_part)(output.storage)
        for number in sorted(done):
            check(number)
        with (
            _watch(on_counts, len(parts), done) as (path, counts),
            _share(task, workers) as shared,
            run_tasks(workers, replace(shared, counts=path), pending) as finished,
        ):
            for count, number in enumerate(finished, len(done) + 1):
                if not counts[number, 0]:
                    counts[number] = -1
                check(number)
                on_progress(count, len(parts))
    output.remove_attempts()
    return output.complete(len(parts))


def ignore_part(number: int) -> None:
    """Do nothing."""


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
