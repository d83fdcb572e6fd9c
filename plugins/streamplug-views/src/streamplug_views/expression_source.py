"""Selections by text: an expression, whose rows the user's cache keeps, or a file with rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import numpy as np
import xxhash
from streamplug_files import ProgressBar
from streamplug_tools.expressions import Expression

from streamplug.cache import source_cache_dir, stage_cache_file
from streamplug.errors import ConfigError, StorageError, UnsafeTypeError, prefix_errors
from streamplug.index import INDEX_NAME
from streamplug.interfaces import public_url
from streamplug.plan import RowSelection, parse_selection
from streamplug.plugin import open_storage, strip_client
from streamplug.source import OpenStream, Source
from streamplug.stream import Stream
from streamplug.transfer import Observer, cache_lock, call_with_retries, map_disk_errors
from streamplug.types import Int64
from streamplug_views.evaluation import evaluate
from streamplug_views.row_set import RowSet, make_row_set
from streamplug_views.sources import same_scheme, source_digest
from streamplug_views.workspace import Context, ViewWorkspace, snapshot_of

_FOLDER = "selections"


class ExpressionSource(Source):
    """``where``: rows of a stream whose ``select`` is text, an expression or the name of a ``.npy`` file."""

    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        text = stream.select
        if not isinstance(text, str):
            raise ConfigError("format='where': pass the expression as select=, without a format")
        if (saved := load_rows(stream)) is not None:
            return replace(stream, select=saved).open(observer)
        Expression(text)  # raises for invalid syntax, before anything is opened
        base = replace(stream, select=None)
        opened = base.open(observer)
        # Stored values, which do not change with the decoders of a run.
        stored = replace(base, decoders=None).open(observer) if base.decoders else opened
        rows = _select(stored, base, text)
        return replace(opened, stream=replace(opened.stream, select=rows), selection=rows)


def load_rows(stream: Stream) -> RowSelection | None:
    """Return the mask or the row numbers in the file that a stream names as `select`; None for an expression.

    Raises:
        StorageError: If the file cannot be read.
        ConfigError: If it is no file of rows.
    """
    location, query = stream.select, ""
    if strip_client(location).startswith(("http://", "https://")):
        location, mark, query = location.partition("?")
        query = mark + query
    if not location.endswith(".npy"):
        return None
    folder, _, name = location.rpartition("/")
    options = stream.storage_options if same_scheme(location, stream.location.parent) else None
    folder = folder or ("/" if location.startswith("/") else ".")
    storage = open_storage(folder + query, options)
    data = call_with_retries(lambda: storage.read(name), stream.retries)
    where = f"select={public_url(location)!r}: {storage.url_of(name)}"
    try:
        rows = np.load(BytesIO(data), allow_pickle=False)
    except Exception as error:  # NumPy reads the head as Python source
        raise ConfigError(
            f"{where} is no file of an array of numbers or booleans, as np.save writes them, or it is damaged"
        ) from error
    with prefix_errors(where, ConfigError):
        return parse_selection(rows)


def _select(opened: OpenStream, stream: Stream, text: str) -> RowSelection:
    """Return the selected rows; evaluates them unless the user's cache has them."""
    url = opened.stream.shown_url
    blocks = _evaluate(opened, stream, text, f"select {text:.40} of {url}")
    content = _version_of(opened)
    if not content:
        return make_row_set(blocks)
    identity = [content, opened.index.digest, source_digest(opened.index), text]
    base = source_cache_dir(url)
    name = f"{_FOLDER}/{xxhash.xxh3_128_hexdigest(json.dumps(identity).encode())}.rows"
    path = base / name
    with map_disk_errors(path):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with cache_lock(base, name):
                if not path.exists():  # no other process made it meanwhile
                    with stage_cache_file(base, name, path) as part:
                        make_row_set(blocks, part)
        return RowSet(path, str(path))


def _version_of(opened: OpenStream) -> str:
    """Return what changes when a data set, or a source of a view, is written again; empty if not known."""
    stream = opened.stream
    try:
        if opened.version:
            return f"{opened.version} {opened.file_versions}"
        info = call_with_retries(lambda: stream.storage.stat(INDEX_NAME), stream.retries)
    except StorageError:  # there is none, or it cannot be reached
        return ""
    return info.version


def _evaluate(opened: OpenStream, stream: Stream, text: str, title: str) -> Iterator[Int64]:
    """Yield the rows for which an expression is true, ascending."""
    with ProgressBar(title) as progress:
        context = Context(
            ViewWorkspace(),
            stream,
            "local",
            None,
            lambda job: progress.update(job.done, job.total),
            allow_unsafe_types=False,
        )
        try:
            yield from evaluate(snapshot_of(opened), text, None, context)
        except UnsafeTypeError as error:
            raise UnsafeTypeError(
                f"{opened.stream.shown_url}: select={text!r:.60} reads a column whose decoding can run code "
                "from the data, which select= never does: pass row numbers or a mask, or read a view, "
                "View.of(…, allow_unsafe_types=True).where(…)"
            ) from error
