"""What the operations on a view work with: temporary files, and data sets that are opened."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from streamplug_tools.options import ProgressCallback

from streamplug.plan import RowRange
from streamplug.plugin import absolute_location
from streamplug.source import OpenStream
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory, map_disk_errors
from streamplug.types import Int64
from streamplug_views.manifest import SourceEntry
from streamplug_views.row_map import RowMap
from streamplug_views.snapshot import GroupState, OpenSource, Snapshot
from streamplug_views.sources import source_digest, source_stream
from streamplug_views.view_source import OpenView


class ViewWorkspace:
    """A temporary directory, which is removed when the workspace is collected."""

    def __init__(self) -> None:
        directory = TemporaryDirectory()
        self.path = directory.path
        self._count = 0
        weakref.finalize(self, directory.close)

    def new_file(self, suffix: str) -> Path:
        """Return the path of a new file."""
        self._count += 1
        # With the process, as forked children count on in the same directory.
        return self.path / f"{os.getpid()}-{self._count}.{suffix}"

    def write_map(self, blocks: Iterable[Int64], size: int, limit: int) -> RowMap:
        """Write a row map.

        Args:
            blocks: The rows.
            size: Their number.
            limit: Number of rows that the data set has.
        """
        path = self.new_file("npy")
        dtype = np.int32 if limit <= np.iinfo(np.int32).max else np.int64
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (size,)}
        # Not through a memory map, where a full disk would end the process.
        with map_disk_errors(path), path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for rows in blocks:
                file.write(np.ascontiguousarray(rows, dtype).data)
        return RowMap(path, limit, path.name)


@dataclass(frozen=True)
class Context:
    """What operations need besides the snapshot.

    Attributes:
        workspace: Place for the rows that they compute.
        stream: Stream with the options of the streams of sources.
        engine: Engine that evaluates expressions.
        shared: Directory or URL that all machines of the engine see; None for the workspace.
        on_progress: Called with the progress of each task, from time to time.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.
    """

    workspace: ViewWorkspace
    stream: Stream
    engine: str
    shared: str | None
    on_progress: ProgressCallback
    allow_unsafe_types: bool


def open_location(url: str, format_: str | None, like: Stream) -> Snapshot:
    """Return a snapshot of a data set or of the latest version of a view.

    Args:
        url: URL or path.
        format_: Format of a data set without index.json.
        like: Stream with the options of the streams.
    """
    # As a source of a view, which has its own directory in the cache of `like`.
    source = SourceEntry(absolute_location(url), format_, split=None, digest="", samples=0)
    snapshot = snapshot_of(open_stream(source_stream(source, like, like.location.parent)))
    decoders = {n: d for n, d in (like.decoders or {}).items() if n in snapshot.columns}
    return snapshot.with_decoders(decoders, url)


def open_stream(stream: Stream) -> OpenStream:
    """Open a data set, a table or a view as views of it will read it.

    That is a table by its location and version: its columns may have changed since its latest version.
    """
    opened = stream.open()
    recorded = opened.stream
    if (recorded.remote, recorded.version) == (stream.remote, stream.version):
        return opened
    return recorded.open()


def snapshot_of(opened: OpenStream) -> Snapshot:
    """Return a snapshot of all rows of a data set, a table or a view."""
    if isinstance(opened, OpenView):
        return opened.snapshot
    stream, index = opened.stream, opened.index
    location = stream.local if stream.remote is None else stream.remote
    url = absolute_location(str(location))
    source = OpenSource(
        url,
        SourceEntry(
            url,
            stream.format,
            stream.split or None,
            source_digest(index),
            index.size,
            int(stream.version) if stream.version is not None else None,
        ),
        opened,
    )
    columns = {name: name for name in source.columns}
    return Snapshot([source], [[GroupState(0, RowRange(0, index.size), columns)]])
