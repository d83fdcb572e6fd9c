"""Evaluation of expressions and keys for all samples of a snapshot."""

from __future__ import annotations

import shutil
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
from streamplug_tools.expressions import Expression
from streamplug_tools.join_by_key import match_sorted_keys
from streamplug_tools.options import JobProgress
from streamplug_tools.row_access import Table
from streamplug_tools.selection_order import SequentialOrder
from streamplug_tools.sort_keys import batch_rows, sort_by_key
from streamplug_tools.tasks import run_tasks

from streamplug.config import check_names
from streamplug.errors import ConfigError, StreamplugError
from streamplug.interfaces import Engine
from streamplug.plugin import (
    Registrations,
    absolute_location,
    join,
    local_path,
    make,
    open_storage,
    registrations,
    restore,
)
from streamplug.source import OpenStream
from streamplug.stream import Stream
from streamplug.transfer import Observer, TemporaryDirectory, call_with_retries, map_disk_errors
from streamplug.types import Int64
from streamplug_views.pruning import kept_ranges, split_ranges
from streamplug_views.row_map import MISSING, RowMap, RowMapping
from streamplug_views.row_set import RowSet, RowSetBuilder
from streamplug_views.snapshot import GroupState, Snapshot
from streamplug_views.sources import same_scheme
from streamplug_views.view_source import open_snapshot_stream
from streamplug_views.workspace import Context

_MIN_TASK_ROWS = 50_000
"""Number of samples from which on starting another process is worth its time."""
_MAX_TASKS = 256
_ROWS_PER_BLOCK = 1 << 20


@dataclass(frozen=True, repr=False)
class SnapshotStream(Stream):
    """A stream of a snapshot, for what reads streams."""

    snapshot: Snapshot = None  # type: ignore[assignment]  # the fields before have defaults

    def open(self, observer: Observer | None = None) -> OpenStream:
        where = f"a view of {self.snapshot.sources[0].opened.stream.shown_url}"
        return open_snapshot_stream(self, self.snapshot, where, "", "")


def make_stream(snapshot: Snapshot) -> SnapshotStream:
    """Return a stream of a snapshot."""
    return SnapshotStream(remote=snapshot.sources[0].url, snapshot=snapshot)


@dataclass(frozen=True)
class _SharedRows:
    """A file in the folder of a task, in place of the row set or the row map that the file has.

    Attributes:
        name: Name of the file.
        size: Number of rows.
        limit: Number of rows that the data set has.
        where: Name of the rows in errors.
    """

    name: str
    size: int
    limit: int
    where: str

    def __len__(self) -> int:
        return self.size

    def open(self, folder: Path) -> RowMapping:
        path = folder / self.name
        is_set = path.suffix == ".rows"
        return RowSet(path, self.where) if is_set else RowMap(path, self.limit, self.where)


@dataclass(frozen=True)
class EvaluationTask:
    """Task of an engine: evaluate an expression for some samples, and store the positions that it keeps.

    `registered` are the plugins registered by name in the process that made the task. If `is_shared`, other
    machines call it, and the rows of the snapshot are `_SharedRows` in `folder`.
    """

    stream: SnapshotStream
    expression: Expression
    names: Sequence[str]
    ranges: Sequence[Sequence[tuple[int, int]]]
    folder: str
    storage_options: Mapping[str, Any] | None
    allow_unsafe_types: bool
    registered: Registrations
    is_shared: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_opened"}

    def share(self) -> EvaluationTask:
        """Return a task for other machines, which see no files in the temporary or cache directory of this.

        Raises:
            StorageError: If the rows cannot be stored in the folder.
        """
        storage, names = open_storage(self.folder, self.storage_options), dict[Path, str]()

        def share_rows(group: GroupState) -> RowMapping:
            rows = group.rows
            if not isinstance(rows, (RowSet, RowMap)) or rows.path is None:
                return rows
            name = names.get(rows.path)
            if name is None:
                name = names[rows.path] = f"shared-{len(names)}{rows.path.suffix}"
                call_with_retries(partial(storage.upload, rows.path, name))
            limit = self.stream.snapshot.sources[group.source].index.size
            shared = _SharedRows(name, len(rows), limit, rows.where)
            return cast("RowMapping", shared)  # opened before they are read

        return replace(self, stream=_change_rows(self.stream, share_rows), is_shared=True)

    @cached_property
    def _opened(self) -> SnapshotStream:
        """The stream, with rows in files of this machine."""
        if not self.is_shared:
            return self.stream
        folder, directory = local_path(self.folder), None
        if folder is None:
            directory = TemporaryDirectory()
            folder = directory.path
        storage = open_storage(self.folder, self.storage_options)

        def open_rows(group: GroupState) -> RowMapping:
            rows = group.rows
            if not isinstance(rows, _SharedRows):
                return rows
            path = folder / rows.name
            if directory is not None and not path.exists():
                with map_disk_errors(path):
                    call_with_retries(partial(storage.download, rows.name, path))
            return rows.open(folder)

        stream = _change_rows(self.stream, open_rows)
        if directory is not None:
            weakref.finalize(stream, directory.close)
        return stream

    def __call__(self, number: int) -> None:
        restore(self.registered)
        table = Table([self._opened], self.names, allow_unsafe_types=self.allow_unsafe_types)
        content, order, expression = BytesIO(), SequentialOrder(table.size), self.expression
        with RowSetBuilder() as builder:
            for first, last in self.ranges[number]:
                for ids, batch in table.read(order, first, last):
                    kept = [
                        expression.is_true(position, expression(position, sample))
                        for position, sample in zip(
                            ids.tolist(), batch_rows(batch, numpy_times=True)
                        )
                    ]
                    builder.add(ids[kept])
            builder.write(content)
        storage = open_storage(self.folder, self.storage_options)
        call_with_retries(partial(storage.write, f"{number}.rows", content.getvalue()))


def _change_rows(
    stream: SnapshotStream, change: Callable[[GroupState], RowMapping]
) -> SnapshotStream:
    """Return a stream of the same samples with other objects for the rows of each group."""
    snapshot = stream.snapshot
    parts = [[replace(g, rows=change(g)) for g in groups] for groups in snapshot.parts]
    return replace(stream, snapshot=replace(snapshot, parts=parts))


def evaluate(
    snapshot: Snapshot, text: str, columns: Sequence[str] | None, context: Context
) -> Iterator[Int64]:
    """Yield the positions of the samples for which an expression is true, ascending.

    Args:
        snapshot: The samples.
        text: The expression.
        columns: Columns that it may use; None for those that it names.
        context: See `Context`.

    Raises:
        StreamplugError: If the expression is invalid, or fails for a sample.
    """
    stream = make_stream(snapshot)
    known = snapshot.columns
    check_names(f"where columns={columns}", "the view", columns or (), known)
    expression = Expression(text).for_columns(columns or known)
    names = expression.columns(columns or known) or known[:1]
    engine_name = context.engine.partition(":")[0]
    kept = kept_ranges(snapshot, expression, names)
    size = sum(last - first for first, last in kept)
    count = min(max(size // _MIN_TASK_ROWS, 1), _MAX_TASKS)
    if engine_name != "local" and context.shared is None:
        raise ConfigError(
            f"engine={context.engine!r} needs workspace=, a directory or a URL that all its machines see"
        )
    engine: Engine = make("engine", context.engine)  # raises even if one task needs none
    place = absolute_location(context.shared or str(context.workspace.path))
    options = context.stream.storage_options
    options = options if same_scheme(place, context.stream.location.parent) else None
    # Its own folder: a late attempt of another evaluation must not replace these results.
    folder = join(place, f"rows-{uuid.uuid4().hex}")
    task = EvaluationTask(
        stream,
        expression,
        names,
        split_ranges(kept, count),
        folder,
        options,
        context.allow_unsafe_types,
        registrations(),
    )
    what = f"where {text:.40}"
    try:
        if count == 1:
            task(0)
        else:
            shared = task if engine_name == "local" else task.share()
            with run_tasks(engine, shared, range(count)) as finished:
                for done, _ in enumerate(finished, 1):
                    context.on_progress(JobProgress(what, size * done // count, size))
        yield from _read_blocks(task, count)
    finally:
        _remove_files(task)


def _read_blocks(task: EvaluationTask, count: int) -> Iterator[Int64]:
    """Yield the positions that the calls of a task have stored."""
    storage = open_storage(task.folder, task.storage_options)
    for number in range(count):
        name = f"{number}.rows"
        data = call_with_retries(partial(storage.read, name))
        rows = RowSet(np.frombuffer(data, np.uint8), name)
        for _, block in rows.blocks():
            yield block


def _remove_files(task: EvaluationTask) -> None:
    """Remove the folder of a task, as far as possible."""
    path = local_path(task.folder)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(StreamplugError, OSError):
        storage = open_storage(task.folder, task.storage_options)
        for info in list(storage.list("")):
            storage.delete(info.key)


def read_keys(snapshot: Snapshot, name: str, context: Context) -> Iterator[tuple[Int64, list[Any]]]:
    """Yield positions and the keys of samples; `name` is the column of the keys."""
    check_names(f"on={name!r}", "the data set", [name], snapshot.columns)
    table = Table([make_stream(snapshot)], [name], allow_unsafe_types=context.allow_unsafe_types)
    for ids, batch in table.read(SequentialOrder(table.size), 0, table.size):
        context.on_progress(JobProgress(f"reading {name}", int(ids[0]), table.size))
        yield ids, [sample[name] for sample in batch_rows(batch, numpy_times=True)]


def match_keys(
    snapshot: Snapshot, other: Snapshot, name: str, url: str, context: Context
) -> tuple[RowMapping, tuple[int, Any] | None]:
    """Return the position in `other` of each sample's key, and the first sample that has none, with its key.

    Raises:
        ConfigError: If `other` has a key twice, or keys cannot be compared.
    """
    folders = []
    for _ in range(3):
        folders.append(context.workspace.new_file("keys"))
        folders[-1].mkdir()
    sorts = [
        sort_by_key(read_keys(of, name, context), folder)
        for of, folder in zip((snapshot, other), folders)
    ]
    [matches] = match_sorted_keys(sorts, [snapshot.size, other.size], ["the view", url], folders[2])
    matches = matches[: snapshot.size]
    absent = None
    for first in range(0, len(matches), _ROWS_PER_BLOCK):
        missing = np.flatnonzero(matches[first : first + _ROWS_PER_BLOCK] == MISSING)
        if len(missing):
            position = first + int(missing[0])
            absent = position, snapshot.reader([name]).row(position)[name]
            break
    return RowMap(matches, other.size, url), absent
