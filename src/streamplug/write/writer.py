"""Writers of samples into shards and their index."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakMethod, finalize

import numpy as np

from streamplug.config import Configurable, check_flags, parse_bytes, suggest_keywords, whole_number
from streamplug.errors import (
    ConfigError,
    EncodeError,
    PluginError,
    StreamplugError,
    WriterError,
    class_name,
)
from streamplug.heap import keep_freed_memory
from streamplug.index import (
    VALUE_SIZES,
    ShardValueSizes,
    chosen_hashes,
    digests,
    file_entry,
    format_index,
    make_encoding,
    pack_value_sizes,
)
from streamplug.interfaces import (
    Column,
    Compression,
    EncodedRows,
    Format,
    RowPiece,
    ShardWriter,
    WritableFormat,
    WriteSettings,
)
from streamplug.plugin import make, open_storage, output_locations
from streamplug.plugin_kit import stage_file
from streamplug.transfer import check_process, map_output_errors
from streamplug.types import Buffer, FileInfo, Int64
from streamplug.write.destination import AppendedDataset, Destination
from streamplug.write.upload import Uploader

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")

EXTRA_KEYS = ("error", "ignore")
"""Policies for keys of a sample that are not columns."""

_WRITE_BUFFER_BYTES = 1 << 18  # three times as fast for rows of a few pages, written one by one
_LOG = logging.getLogger("streamplug")
_MAX_UNPACKED_PIECES = 4096


def make_columns(columns: Mapping[str, str] | None, format_: Format) -> list[Column]:
    """Validate columns and create their encodings, which a format may define itself."""
    if not isinstance(columns, Mapping):
        raise ConfigError(f"columns={columns!r:.80}: expected a mapping from names to encodings")
    if not columns:
        raise ConfigError("columns= is empty; name at least one column and its encoding")
    items: Mapping[Any, Any] = columns
    for name, spec in items.items():
        if not (isinstance(name, str) and isinstance(spec, str)):
            raise ConfigError(f"columns= maps names to encodings, got {name!r}: {spec!r}")
    return [
        Column(name, spec, make_encoding(name, spec, format_.encodings))
        for name, spec in columns.items()
    ]


def make_encoder(
    columns: Sequence[Column], encode: Callable[[Any], T], extra_keys: str
) -> Callable[[Any], T]:
    """Return `encode`, or an encoder that drops extra keys first if `extra_keys` is ``"ignore"``."""
    if extra_keys not in EXTRA_KEYS:
        raise ConfigError(f"extra_keys={extra_keys!r:.60}: choose one of {', '.join(EXTRA_KEYS)}")
    if extra_keys == "error":
        return encode
    names = [column.name for column in columns]

    def encode_columns(sample: Any) -> T:
        if type(sample) is dict and len(sample) == len(names):
            return encode(sample)  # the usual case; raises for missing keys
        if not hasattr(sample, "keys"):
            return encode(sample)  # raises: not a sample
        keys = sample.keys()
        return encode({name: sample[name] for name in names if name in keys})

    return encode_columns


def format_of(format_: object) -> WritableFormat:
    """Return a writable format from its name, or the format itself."""
    name = format_ if isinstance(format_, str) else type(format_).__name__
    if isinstance(format_, str):
        format_ = make("format", format_)
    if not isinstance(format_, Format):
        raise ConfigError(f"format={format_!r:.80}: expected the name of a format, or a format")
    if not isinstance(format_, WritableFormat):
        raise ConfigError(
            f"format {name} can only be read; name another one with format=, such as mds"
        )
    return format_


def _warn_unfinished(url: str, process: int) -> None:
    if process == os.getpid():  # a forked process has a copy of the writer
        _LOG.warning(
            "%s: the writer was dropped without finish(), so no index.json was written, and its samples "
            "cannot be read; call finish(), or use a `with` statement",
            url,
        )


class WriteProgress:
    """Line with the numbers of samples, shards and bytes so far, if `enabled`."""

    def __init__(self, *, enabled: bool, title: str) -> None:
        self._progress: Any = None
        if enabled:
            from rich import progress

            from streamplug.display import TitleColumn, make_progress

            counts = "{task.fields[samples]:,} samples, {task.fields[shards]:,} shards"
            self._progress = make_progress(
                progress.SpinnerColumn(),
                TitleColumn(),
                progress.TextColumn(counts),
                progress.FileSizeColumn(),
                progress.TransferSpeedColumn(),
                progress.TimeElapsedColumn(),
            )
            self._task = self._progress.add_task(title, total=None, samples=0, shards=0)
            self._progress.start()

    def update(self, *, samples: int, shards: int, num_bytes: int) -> None:
        """Update the numbers."""
        if self._progress is not None:
            self._progress.update(self._task, samples=samples, shards=shards, completed=num_bytes)

    def close(self) -> None:
        """Stop updating the line."""
        if self._progress is not None:
            self._progress.stop()


def write_shard_file(
    folder: Path,
    basename: str,
    content: Sequence[Buffer],
    hashes: Sequence[str],
    compression: Compression | None,
) -> tuple[FileInfo, FileInfo | None]:
    """Write a raw file, or only its compressed file, and return the `FileInfo` of both."""
    size = sum(len(piece) for piece in content)
    raw = FileInfo(basename, size, digests(hashes, content))
    stored = None
    if compression is not None:
        compressed = _compress(compression, b"".join(content), raw.basename)
        name = f"{basename}.{compression.suffix}" if compression.suffix else basename
        stored = FileInfo(name, len(compressed), digests(hashes, [compressed]))
        content = [compressed]
    target = folder / (stored or raw).basename
    with (
        map_output_errors(target, (stored or raw).bytes),
        stage_file(target) as part,
        part.open("wb", _WRITE_BUFFER_BYTES) as stream,
    ):
        stream.writelines(content)
    return raw, stored


def _compress(compression: Compression, data: bytes, basename: str) -> bytes:
    what = f"{basename}: {class_name(type(compression))}.compress"
    try:
        compressed: object = compression.compress(data)  # unchecked so far
    except (StreamplugError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{what} raised {type(error).__name__}: {error}") from error
    if not isinstance(compressed, bytes):
        raise PluginError(f"{what} returned {type(compressed).__name__}; expected bytes")
    return compressed


class _State(Enum):
    """State of a writer; the values say why no sample is accepted."""

    OPEN = ""
    FLUSHING = "a shard is being written by another thread"
    FINISHING = "the data set is being completed by another thread"
    FINISHED = "the data set is complete"
    ABORTED = "the data set was given up after an error"
    REPLACED = "another writer was started in the place of this one"
    SHARED = "the data set was given up, as two threads wrote at a time"

    @property
    def is_closed(self) -> bool:
        return self not in (_State.OPEN, _State.FLUSHING, _State.FINISHING)


class Writer(Configurable, section="writer"):
    """Writes samples into the shards of a new data set, and its index last.

    Use it in a ``with`` statement: a normal exit completes the data set; an exception leaves shards without
    an index, which cannot be mistaken for a complete data set. Call it from one thread at a time.

    Args:
        columns: Encoding of each column by its name; with `append`, None for the existing columns.
        out: A local path, a URL, or a pair (local path, URL).
        format: Name of the shard format, or a format.
        keep_local: Whether to keep local files after their upload, if `out` has a local path.
        compression: Name and optional level after a colon: ``"zstd:11"``; None for none.
        hashes: Names of the digests of each file in the index, by which readers detect damage: None for
            ``["xxh3_64"]``, or with `append` for those of the data set; ``[]`` for none, as in
            mosaicml-streaming.
        size_limit: Maximum size of a raw shard: bytes, or text such as ``"64mb"``; None writes a single
            shard. A larger sample gets a shard of its own.
        max_samples_per_shard: Maximum number of samples per shard; None is unlimited.
        progress_bar: Whether to show the numbers of samples, shards and bytes written.
        max_workers: Concurrent uploads; None for four more than the processors, at most 32.
        retry: Retries of a failed upload.
        exist_ok: Whether to replace what is in `out`: all of a local directory, and the index at a URL.
        append: Whether to add shards to the data set in `out`. Its index is replaced last: until then, and if
            the writer is stopped, the data set is unchanged. Only one writer may append at a time.
        storage_options: Options of the storage that files are uploaded to.
        extra_keys: Policy for keys of a sample that are not columns: ``"error"`` rejects the sample,
            ``"ignore"`` drops them.
        durable: Whether local files are synced to their disk before the index names them: a loss of power
            leaves the data set whole, as it was, or without an index. False is for scratch files.
        value_sizes: Whether to store the sizes of arrays of whole numbers that vary in length, such as
            documents of tokens, in a small file beside the shards, so that readers need not read these to
            know them. False writes only what mosaicml-streaming writes.

    Raises:
        OutputExistsError: If `out` is not empty, without `exist_ok` or `append`, or has another writer.
        NotFound: If there is no data set to append to.
        ConfigError: If an argument is invalid.
        PluginError: If a plugin is not available.
    """

    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        out: str | Path | tuple[str | Path, str],
        format: str | Format = "mds",  # noqa: A002 - the word that users know
        keep_local: bool = False,
        compression: str | None = None,
        hashes: Sequence[str] | None = None,
        size_limit: float | str | None = 1 << 26,
        max_samples_per_shard: int | None = None,
        progress_bar: bool = False,
        max_workers: int | None = None,
        retry: int = 2,
        exist_ok: bool = False,
        append: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        extra_keys: str = "error",
        durable: bool = True,
        value_sizes: bool = True,
    ) -> None:
        if whole_number("retry", retry, 0) is None:
            raise ConfigError("retry=None: must be a whole number of at least 0")
        whole_number("max_workers", max_workers, 1)
        check_flags(
            keep_local=keep_local,
            progress_bar=progress_bar,
            exist_ok=exist_ok,
            append=append,
            durable=durable,
            value_sizes=value_sizes,
        )
        self._format = format_of(format)
        if append and exist_ok:
            raise ConfigError(
                "append=True adds to what exist_ok=True would remove: give one of them"
            )
        self._appended: AppendedDataset | None = None
        if append:
            storage = open_storage(output_locations(out)[-1], storage_options)
            self._appended = AppendedDataset.read(storage, retry)
            columns = self._appended.columns(columns, self._format)
        encodings = make_columns(columns, self._format)
        self._compression: Compression | None = None
        if compression is not None:
            self._compression = make("compression", compression)
        if hashes is None and self._appended is not None:
            hashes = self._appended.hashes
        self._hashes = chosen_hashes(hashes)
        self._max_samples = (
            whole_number("max_samples_per_shard", max_samples_per_shard, 1) or sys.maxsize
        )
        self._size_limit = None if size_limit is None else parse_bytes(size_limit, "size_limit")
        self._rows: ShardWriter = self._format.writer(
            encodings, WriteSettings(compression, self._hashes, self._size_limit)
        )
        self._overhead = self._rows.row_overhead
        self._encode = make_encoder(encodings, self._rows.encode_pieces, extra_keys)
        self._encode_batch = make_encoder(encodings, self._rows.encode_batch, extra_keys)
        self._is_oversize_reported = False
        self._max_shard_bytes = min(
            x for x in (self._size_limit, self._rows.max_size, 1 << 62) if x is not None
        )
        self._check_size_limit(size_limit)
        self._destination = self._open_destination(
            out,
            exist_ok=exist_ok,
            append=self._appended,
            keep_local=keep_local,
            storage_options=storage_options,
        )
        self._uploader = Uploader(
            self._destination.storage,
            self._destination.folder,
            keep_local=self._destination.keep_local,
            durable=durable,
            retries=retry,
            num_threads=max_workers or min(32, (os.cpu_count() or 1) + 4),
        )
        self._progress = WriteProgress(
            enabled=progress_bar, title=f"writing {self._destination.url}"
        )
        self._entries: list[dict[str, Any]] = []
        self._value_sizes: list[ShardValueSizes] = []
        self._stores_value_sizes = value_sizes
        self._written_bytes = self._raw_bytes = self._samples = 0
        self._enter(_State.OPEN)
        self._destination.make_place = WeakMethod(self._make_place)
        self._new_shard()
        # Not __del__: it also tells of writers that are alive when the program ends.
        self._reminder = finalize(self, _warn_unfinished, self._destination.url, os.getpid())
        keep_freed_memory()

    def _open_destination(self, out: Any, **options: Any) -> Destination:
        # Called when all other arguments are valid: `streamplug config check` stops here.
        return Destination(out, **options)

    def _check_size_limit(self, size_limit: float | str | None) -> None:
        # A method, as the writers of streamplug-mosaic accept any limit.
        used = self._rows.base_size + self._rows.row_overhead
        if self._max_shard_bytes <= used:
            raise ConfigError(
                f"size_limit={size_limit!r} leaves no room for a sample: a shard takes {used} bytes besides "
                "the values of its first one; give more, such as '64mb'"
            )

    def _new_shard(self) -> None:
        self._packed: list[RowPiece] = []
        self._row_sizes: list[Int64] = []  # of rows written in batches, or packed
        self._num_rows = 0  # number of those rows
        self._unpacked: list[RowPiece] = []
        self._single_sizes: list[int] = []  # of rows written singly, not yet packed
        self._size = self._rows.base_size
        self._max_singles = min(self._max_samples, _MAX_UNPACKED_PIECES)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Write one sample.

        Args:
            sample: The value of each column by its name.

        Raises:
            EncodeError: If its columns differ, or a value cannot be stored.
            WriterError: If the data set is complete, or was given up after an error.
        """
        row, size = self._encode(sample)
        cost = size + self._overhead
        if self._size + cost > self._max_bytes or len(self._single_sizes) >= self._max_singles:
            self._pack_or_flush(cost)
        try:  # not `_giving_up`, which takes longer than what is in it
            self._unpacked += row
            self._single_sizes.append(size)
            self._size += cost
        except BaseException:  # interrupted, as by Ctrl-C
            self._close(_State.ABORTED)
            raise

    def write_batch(self, columns: Mapping[str, Any]) -> None:
        """Write many samples, given by columns; arrays of fixed-size columns are written without conversion.

        Args:
            columns: Values of each column by its name, of equal length: a list, or an array whose first
                axis is the samples.

        Raises:
            EncodeError: As for `write`, or if the columns differ in length.
            WriterError: If the data set is complete, or was given up after an error.
        """
        data, sizes = self._encode_batch(columns)
        if not len(sizes):
            return
        self._check_open()
        largest = int(sizes.argmax())  # before any sample is added
        self._check_max_size(int(sizes[largest]) + self._overhead, self.written[0] + largest)
        if self._single_sizes:
            self._pack()
        with self._giving_up():
            self._add_rows(data, sizes)

    def _add_rows(self, data: EncodedRows, sizes: Int64) -> None:
        """Add the encoded rows of a batch, in as many shards as they need."""
        ends = np.cumsum(sizes + self._rows.row_overhead)
        bytes_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        first = 0
        while first < len(sizes):
            spent = int(ends[first - 1]) if first else 0
            fits = int(np.searchsorted(ends, self._max_bytes - self._size + spent, side="right"))
            fits = min(fits, first + self._max_samples - self._num_rows)
            if fits <= first or len(self._unpacked) >= _MAX_UNPACKED_PIECES:
                cost = int(ends[first]) - spent
                self._pack_or_flush(cost)
                if self._rows.base_size + cost <= self._max_bytes:
                    continue
                fits = first + 1  # in a shard of its own
            if isinstance(data, (bytes, bytearray, memoryview)):
                self._unpacked.append(memoryview(data)[bytes_before[first] : bytes_before[fits]])
            elif isinstance(data, list):
                self._unpacked += chain.from_iterable(data[first:fits])
            else:
                self._unpacked.append(data[first:fits])
            self._row_sizes.append(sizes[first:fits])
            self._num_rows += fits - first
            self._size += int(ends[fits - 1]) - spent
            self._max_singles = 0  # single rows are packed separately
            first = fits

    def _pack_or_flush(self, cost: int) -> None:
        """Pack the collected rows, or start a new shard, to make room for a sample of `cost` bytes."""
        self._check_open()
        number = self._num_rows + len(self._single_sizes)
        if self._size + cost <= self._max_bytes and number < self._max_samples:
            self._pack()
            return
        if self._rows.base_size + cost > self._max_bytes:
            self._accept_oversize(cost, self._samples + number)
        if number:
            self._flush()

    def _accept_oversize(self, cost: int, sample: int) -> None:
        """Check that a sample above the size limit fits in its own shard, and log the first one."""
        self._check_max_size(cost, sample)
        if not self._is_oversize_reported:
            self._is_oversize_reported = True
            _LOG.warning(
                "%s: sample %d takes %d bytes, more than size_limit=%s, and gets a shard of its own, as do "
                "others like it; raise size_limit to have shards of about one size",
                self._destination.url,
                sample,
                cost,
                self._size_limit,
            )

    def _check_max_size(self, cost: int, sample: int) -> None:
        max_size = self._rows.max_size
        if max_size is not None and self._rows.base_size + cost > max_size:
            raise EncodeError(
                f"sample {sample} takes {cost} bytes, more than a shard can hold: its file has at most "
                f"{max_size} bytes; split the sample"
            )

    def _pack(self) -> None:
        with self._giving_up():
            if self._unpacked:
                self._packed += self._rows.pack(self._unpacked)
            self._row_sizes.append(np.array(self._single_sizes, np.int64))
            self._num_rows += len(self._single_sizes)
            self._unpacked, self._single_sizes = [], []
            self._max_singles = min(self._max_samples - self._num_rows, _MAX_UNPACKED_PIECES)

    def _enter(self, state: _State) -> None:
        self._state = state
        # Bytes that a shard may have: without room for a sample, `write` looks at the state.
        self._max_bytes = self._max_shard_bytes if state is _State.OPEN else -1

    def _check_open(self) -> None:
        """Raise an error if no sample is accepted; give the data set up if two threads write."""
        if self._state is _State.FLUSHING:
            self._close(_State.SHARED)
        self._check_state(_State.OPEN)

    def _check_state(self, expected: _State) -> None:
        if self._state is not expected:
            raise WriterError(
                f"{self._destination.url}: {self._state.value}; make a new writer for another one"
            )

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Give the data set up if the block fails or is interrupted: some samples may be in it, or twice."""
        try:
            yield
        except BaseException:
            self._close(_State.ABORTED)
            raise

    def _flush(self) -> None:
        with self._giving_up():
            self._enter(_State.FLUSHING)
            try:
                self._write_shard()
            except Exception:
                # Another thread that gives the data set up removes what this one writes.
                if self._state.is_closed:
                    self._check_state(_State.FLUSHING)
                raise
            self._check_state(_State.FLUSHING)
            self._enter(_State.OPEN)

    def _write_shard(self) -> None:
        check_process(self._destination.process)
        self._pack()
        folder, number, count = self._destination.folder, len(self._entries), self._num_rows
        if self._appended is not None:
            self._appended.check()
            number += self._appended.number
        row_sizes = np.concatenate(self._row_sizes)
        content = self._rows.assemble(self._packed, row_sizes)
        entry = {"hashes": [*self._hashes], **self._rows.entry(), "samples": count}
        for role, pieces in content.items():
            ending = self._format.suffix + ("" if role == "data" else f".{role}")
            name = f"shard.{number:05d}.{ending}"
            raw, stored = write_shard_file(folder, name, pieces, self._hashes, self._compression)
            entry |= {f"raw_{role}": file_entry(raw), f"zip_{role}": file_entry(stored)}
            self._destination.remove_stale_raw(raw, stored)
            self._written_bytes += (stored or raw).bytes
            self._uploader.put((stored or raw).basename)
            if role == "data" and self._stores_value_sizes:
                sizes = self._rows.value_sizes(self._packed, row_sizes)
                self._value_sizes += [ShardValueSizes(raw, count, sizes)] if sizes else []
        self._entries.append(entry)
        self._samples += count
        self._raw_bytes += self._size
        self._new_shard()
        self._progress.update(
            samples=self._samples, shards=len(self._entries), num_bytes=self._written_bytes
        )

    @property
    def written(self) -> tuple[int, int]:
        """Numbers of samples and of raw bytes so far."""
        samples = self._samples + self._num_rows + len(self._single_sizes)
        return samples, self._raw_bytes + self._size

    @property
    def num_existing_samples(self) -> int:
        """Number of samples of the data set that is appended to; 0 for a new one."""
        return self._appended.num_samples if self._appended else 0

    def finish(self) -> None:
        """Complete the data set: write the last shard, then the index. May be called twice.

        Raises:
            StorageError: If an upload fails.
            WriterError: If the data set was aborted by an error before.
        """
        if self._state is _State.FINISHED:
            return
        self._check_open()
        with self._giving_up():
            if self._num_rows or self._single_sizes:
                self._flush()
            self._enter(_State.FINISHING)
            extra = self._write_value_sizes()
            self._uploader.drain()
            self._check_state(_State.FINISHING)  # given up, files may not be on the disk
            data = format_index(self._entries, extra)
            if self._appended is not None:
                data = self._appended.extended_index(self._entries, extra)
            self._destination.write_index(data, durable=self._uploader.durable)
            self._uploader.put_index(data)
        self._close(_State.FINISHED)

    def _write_value_sizes(self) -> dict[str, Any]:
        """Write the file of the sizes of values, if there are any, and return what the index says of it."""
        if not self._value_sizes:
            return {}
        number = self._appended.number if self._appended else 0
        content = [pack_value_sizes(self._value_sizes)]
        name = f"shard.{number:05d}.sizes"
        file, _ = write_shard_file(self._destination.folder, name, content, self._hashes, None)
        self._uploader.put(name)
        return {VALUE_SIZES: [file_entry(file)]}

    def _make_place(self) -> None:
        self._close(_State.REPLACED)

    def _close(self, state: _State) -> None:
        self._reminder.detach()
        if not self._state.is_closed:
            self._enter(state)
        self._progress.close()
        self._uploader.close()
        self._destination.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.finish()
        elif not self._state.is_closed:
            self._close(_State.ABORTED)


@suggest_keywords
class MDSWriter(Writer):
    """A `Writer` of MDS shards, the format of mosaicml-streaming; see `Writer`."""

    if not TYPE_CHECKING:  # for types, the arguments are those of `Writer`

        def __init__(
            self,
            *,
            columns: Mapping[str, str] | None = None,
            out: str | Path | tuple[str | Path, str],
            **kwargs: Any,
        ) -> None:
            if "format" in kwargs:
                raise ConfigError("MDSWriter writes MDS; use Writer(format=…) for another format")
            super().__init__(columns=columns, out=out, format="mds", **kwargs)
