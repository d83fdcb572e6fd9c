"""Reading of committed views as streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from streamplug_tools.inspection import TableOrigin

from streamplug.errors import ConfigError, DataError
from streamplug.index import Index
from streamplug.plan import RowRange, RowSelection, SelectedRows
from streamplug.plugin import join, local_path
from streamplug.read import Reader, SampleReader
from streamplug.source import OpenStream, Source
from streamplug.stream import Stream
from streamplug.transfer import Observer
from streamplug.types import Int64
from streamplug_views.manifest import Group, Manifest
from streamplug_views.readers import ConcatReader
from streamplug_views.row_map import RowMap, RowMapping, load_array
from streamplug_views.row_set import RowSet
from streamplug_views.snapshot import GroupState, OpenSource, Snapshot
from streamplug_views.sources import open_source, resolve_url
from streamplug_views.version_store import VersionStore

_opening: ContextVar[str] = ContextVar("opening", default="")


class ViewSource(Source):
    """Views: rows and columns of data sets, in versions."""

    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        url = join(stream.location.parent, stream.split or "")
        store = VersionStore(url, stream.storage_options, stream.retries)
        manifest, digest = store.read(store.resolve(stream.version))
        snapshot = open_snapshot(store, manifest, stream, observer)
        return open_snapshot_stream(
            stream, snapshot, store.url, digest, f"version {manifest.version}"
        )


def open_snapshot_stream(
    stream: Stream, snapshot: Snapshot, where: str, digest: str, version: str
) -> OpenView:
    """Return an opened stream of a snapshot; `digest` identifies it in states."""
    snapshot = snapshot.with_decoders(stream.decoders or {}, where)
    index = ViewIndex(snapshot, where, version)
    index.digest = digest
    if stream.select is not None:
        stream.select.check(index.size, repr(stream))
    return OpenView(stream, index, None, where, stream.select, version, snapshot)


def open_snapshot(
    store: VersionStore, manifest: Manifest, stream: Stream, observer: Observer | None
) -> Snapshot:
    """Open the sources of a version.

    Args:
        store: The view.
        manifest: The version.
        stream: Stream with the options of the sources' streams.
        observer: Receives their events.

    Raises:
        StreamplugError: If a source cannot be opened or changed, or a file of the view is damaged.
    """
    where = f"{store.url}, version {manifest.version}"
    with _not_nested(where):
        sources = [
            OpenSource(
                resolve_url(source.url, store.location, source.format),
                source,
                open_source(source, stream, store.location, observer, where),
            )
            for source in manifest.sources
        ]
    folder = None
    if stream.local is not None and local_path(store.location) is None:
        folder = stream.location.root
    parts = []
    for part in manifest.parts:
        groups = []
        for group in part.groups:
            source = sources[group.source]
            rows = _open_rows(store, group, source.source.samples, folder)
            starts = None
            if group.starts is not None:
                starts = load_array(store.local_file(group.starts, folder), group.starts)
                if len(starts) != len(source.index) + 1 or not _are_starts(starts, len(rows)):
                    raise DataError(f"{store.url_of(group.starts)} does not fit {source.url}")
            columns = group.columns
            if columns is None:
                columns = {name: name for name in source.columns}
            if missing := sorted(columns.keys() - source.columns):
                raise DataError(f"{where}: {source.url} has no columns {missing}")
            groups.append(GroupState(group.source, rows, columns, starts, group.starts))
        parts.append(groups)
    return Snapshot(sources, parts, manifest.steps)


def _are_starts(starts: Int64, size: int) -> bool:
    return starts[0] == 0 and starts[-1] == size and bool((starts[:-1] <= starts[1:]).all())


def _open_rows(store: VersionStore, group: Group, samples: int, folder: Path | None) -> RowMapping:
    if group.rows is None:
        return RowRange(0, samples)
    where = store.url_of(group.rows.file)
    path = store.local_file(group.rows.file, folder)
    rows: RowMapping
    if group.rows.file.endswith(".rows"):
        rows = RowSet(path, where)
        if rows.end > samples:
            raise DataError(
                f"{where} has row {rows.end - 1:,}; the data set has {samples:,} rows, from 0"
            )
    else:
        rows = RowMap(path, samples, where)
    if len(rows) != group.rows.size:
        raise DataError(f"{where} has {len(rows):,} rows; expected {group.rows.size:,}")
    return rows


@contextmanager
def _not_nested(where: str) -> Iterator[None]:
    if outer := _opening.get():
        raise DataError(f"{outer}: its source {where} is a view; sources must be data sets")
    token = _opening.set(where)
    try:
        yield
    finally:
        _opening.reset(token)


class ViewIndex(Index):
    """Index of a view, which says where its columns and rows come from."""

    def __init__(self, snapshot: Snapshot, where: str, version: str) -> None:
        plain = snapshot.index(where)
        super().__init__(
            plain.starts, plain.schemas, plain.schema_of, plain.tables, where=plain.where
        )
        self._snapshot, self._version = snapshot, version

    @property
    def origin(self) -> TableOrigin:
        """Where columns and rows come from."""
        columns: dict[str, list[str]] = {}
        for group in (group for groups in self._snapshot.parts for group in groups):
            url = self._snapshot.sources[group.source].opened.stream.shown_url
            for name in group.columns.values():
                if url not in columns.setdefault(name, []):
                    columns[name].append(url)
        first = self._snapshot.sources[self._snapshot.parts[0][0].source]
        steps = [(step.step, step.samples) for step in self._snapshot.steps]
        start = (f"all samples of {first.opened.stream.shown_url}", first.index.size)
        return TableOrigin(self._version, columns, [start, *steps])


@dataclass(frozen=True)
class OpenView(OpenStream):
    """An opened view."""

    snapshot: Snapshot = None  # type: ignore[assignment]  # the fields before have defaults

    @property
    def downloads(self) -> bool:
        return any(source.opened.downloads for source in self.snapshot.sources)

    @property
    def folders(self) -> set[tuple[str, str]]:
        return {folder for source in self.snapshot.sources for folder in source.opened.folders}

    @property
    def file_versions(self) -> str:
        return " ".join(source.opened.file_versions for source in self.snapshot.sources)

    def stored(self, column: str | None) -> OpenStream:
        groups = self.snapshot.parts[0]
        if column is not None:
            groups = [group for group in groups if column in group.columns.values()]
        if len(self.snapshot.parts) > 1 or len(groups) != 1:
            raise ConfigError(
                f"{self.where} has samples of several data sets, and not only selected rows of one: write it "
                "as a data set with `streamplug view compact`"
            )
        [group] = groups
        renamed = [new for old, new in group.columns.items() if old != new == column]
        if renamed or not isinstance(group.rows, RowSelection):
            why = "is renamed" if renamed else "is added by key"
            raise ConfigError(
                f"{self.where}: column {column!r} {why}, so its values are not those of selected rows: write "
                "the view as a data set with `streamplug view compact`"
            )
        rows: RowSelection = group.rows
        if self.selection is not None:
            rows = SelectedRows(rows.rows(self.selection.rows(np.arange(len(self.selection)))))
        source = self.snapshot.sources[group.source].opened
        return replace(source, selection=rows, version=self.version)

    def make_reader(
        self, opened: Sequence[OpenStream], columns: Sequence[str] | None
    ) -> SampleReader:
        readers = [_reader(stream, columns) for stream in opened]
        return readers[0] if len(readers) == 1 else ConcatReader(readers, one_stream=False)


def version_of(opened: OpenView) -> int:
    """Return the number of the version of an opened view."""
    return int(opened.version.rpartition(" ")[2])


def _reader(stream: OpenStream, columns: Sequence[str] | None) -> SampleReader:
    if isinstance(stream, OpenView):
        return stream.snapshot.reader(columns, stream.selection)
    return cast("SampleReader", Reader([stream.index.starts], [stream.shards(columns)]))
