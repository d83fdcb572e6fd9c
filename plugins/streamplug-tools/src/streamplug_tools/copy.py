"""Copying of samples into a new data set; every job writes by this module."""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from streamplug_files import PLAN_NAME

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError, DataError, EncodeError, UnsafeTypeError, prefix_errors
from streamplug.index import INDEX_NAME, make_encoding
from streamplug.interfaces import Column, Encoding, Storage
from streamplug.plugin import local_path, open_storage, output_locations
from streamplug.source import read_index
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory
from streamplug.types import Int64
from streamplug_tools.array_values import make_array_converter
from streamplug_tools.bad_samples import (
    BAD_SAMPLE_ERRORS,
    BadSamples,
    count_reports,
    read_report,
    write_report,
)
from streamplug_tools.column_mapping import (
    ColumnMapping,
    add_key_column,
    check_writable,
    map_columns,
)
from streamplug_tools.dataset_removal import check_empty
from streamplug_tools.options import (
    Columns,
    JobProgress,
    Output,
    ProgressCallback,
    WriteResult,
    ignore_progress,
)
from streamplug_tools.part_sizes import samples_per_part
from streamplug_tools.partitioned import write_parts
from streamplug_tools.raw_values import RawFormat, decode_values, same_encoding
from streamplug_tools.real_location import RealLocation
from streamplug_tools.row_access import (
    ROWS_PER_STEP,
    Batch,
    Content,
    Table,
    absolute_streams,
    batch_rows_of,
    move_caches,
)
from streamplug_tools.selection_order import (
    NO_SAMPLE,
    GaplessOrder,
    ListedOrder,
    SelectionOrder,
    SharedOrder,
    with_gaps,
)
from streamplug_tools.time_values import Convert, is_temporal, make_converter

_INDEX_RETRIES = 2


class BatchTransform(Protocol):
    """Transformation of samples during a copy; picklable."""

    @property
    def columns(self) -> Sequence[str]:
        """Source columns that it needs decoded."""

    @property
    def is_by_sample(self) -> bool:
        """Whether it makes one sample of each, so that an error is that of a sample."""

    def apply(self, batches: Iterator[tuple[Int64, Batch, Batch]]) -> Iterator[Batch]:
        """Yield the batches to write.

        Args:
            batches: Sample numbers, the values of `columns`, and the columns to write.
        """


@dataclass(frozen=True)
class CopyInput:
    """Samples to copy.

    Attributes:
        streams: Source data sets.
        order: Samples to copy, in order.
        columns: Columns to write.
        content: `Table.content` of the streams when the samples were chosen; empty for any.
        cache_folder: Directory of this machine in which streams cache; None if they cache nowhere, or where
            the user has chosen.
        has_gaps: Whether `order` may have `NO_SAMPLE`, for which None is written.
    """

    streams: Sequence[Stream]
    order: SelectionOrder
    columns: Sequence[ColumnMapping]
    content: Content = ()
    cache_folder: Path | None = None
    has_gaps: bool = False


_CACHED = ("_tables", "_passed_on", "_conversions")


@dataclass(frozen=True)
class CopyTask:
    """Picklable task that yields the samples of a part.

    Attributes:
        inputs: Inputs whose columns are combined; all have the same number of samples.
        key: Name of a column to fill with numbers, or None.
        change: Transformation, or None.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.
        is_shared: Whether it is called on other machines.
        skip_bad: Largest number of bad samples that are left out.
    """

    identity: ClassVar[str] = "copy"  # `parts` say the rest

    inputs: Sequence[CopyInput]
    key: str | None = None
    change: BatchTransform | None = None
    allow_unsafe_types: bool = False
    is_shared: bool = False
    skip_bad: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _CACHED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def open(self) -> None:
        """Open the inputs, which are otherwise opened on first use.

        Raises:
            StreamplugError: If it cannot be opened, or something of it must not be decoded.
        """
        _ = self._tables, self._raw_encodings

    def share(self, location: str, storage_options: Mapping[str, Any] | None) -> CopyTask:
        """Return a task for other machines, which see no file of this machine's temporary directory.

        Args:
            location: Location for files that all machines see.
            storage_options: Options of its storage.
        """
        inputs = []
        for number, source in enumerate(self.inputs):
            order = source.order
            if isinstance(order, ListedOrder):
                name = f"ids-{number}"
                open_storage(location, storage_options).upload(order.path, name)
                order = SharedOrder(location, name, order.size, storage_options)
            inputs.append(replace(source, order=order, streams=absolute_streams(source.streams)))
        return replace(self, inputs=inputs, is_shared=True)

    @cached_property
    def _tables(self) -> list[Table]:
        return [self._open_table(source) for source in self.inputs]

    def _open_table(self, source: CopyInput) -> Table:
        changed = self.change.columns if self.change is not None else ()
        streams, directories = source.streams, list[TemporaryDirectory]()
        if self.is_shared and source.cache_folder is not None:
            streams, directories = move_caches(streams, source.cache_folder)
        table = Table(
            streams,
            sorted({c.source for c in source.columns} | set(changed)) or None,
            stored={c.source for c in source.columns if c.stored},
            allow_unsafe_types=self.allow_unsafe_types,
        )
        for directory in directories:
            weakref.finalize(table, directory.close)
        table.check_content(source.content)
        return table

    @staticmethod
    def describe(part: Mapping[str, Any]) -> str:
        """Return the name of a part in errors."""
        begin, end = part["samples"]
        return f"samples {begin:,} to {end - 1:,} of the new data set" if end else "no samples"

    def __call__(self, part: Mapping[str, Any]) -> CopiedBatches:
        """Return the samples of a part."""
        return CopiedBatches(self, *part["samples"])

    def watch_parts(self, home: Storage) -> Callable[[int], None]:
        """Return a function that is called with each finished part, and raises after too many bad samples."""
        return count_reports(home, self.skip_bad)

    def place(self, sample_id: int) -> tuple[str, int]:
        """Return the file and the row of a sample of the first input."""
        return self._tables[0].place(sample_id)

    def batches(
        self, begin: int, end: int, bad: BadSamples
    ) -> Iterator[tuple[Int64, Batch, Batch]]:
        """Yield sample numbers, decoded columns for the transformation, and the columns to write.

        Args:
            begin: First position in the order.
            end: End position, exclusive.
            bad: Takes the samples that cannot be read.
        """
        rows = min(table.rows for table in self._tables)
        while begin < end:
            try:
                for together in zip(*self._reads(begin, end, rows)):
                    yield self._copied(begin, together)
                    begin += len(together[0][0])
                return
            except BAD_SAMPLE_ERRORS:
                stop = min(begin + rows, end)
            for position in range(begin, stop):
                if (single := self._single(position, bad)) is not None:
                    yield single
            begin = stop

    def _reads(self, begin: int, end: int, rows: int) -> list[Iterator[tuple[Int64, Batch]]]:
        return [
            table.read(_readable_order(source), begin, end, rows)
            for table, source in zip(self._tables, self.inputs)
        ]

    def _single(self, position: int, bad: BadSamples) -> tuple[Int64, Batch, Batch] | None:
        """Return what `batches` yields for the sample at a position; None if it is bad."""
        together = []
        for table, source in zip(self._tables, self.inputs):
            ids = source.order.ids(position, position + 1)
            try:
                together.append((ids, {} if ids[0] == NO_SAMPLE else table.take(ids)))
            except BAD_SAMPLE_ERRORS as error:
                bad.add(*table.place(int(ids[0])), error)
                return None
        try:
            return self._copied(position, together)
        except BAD_SAMPLE_ERRORS as error:
            bad.add(*self.place(int(together[0][0][0])), error)
            return None

    def _copied(
        self, begin: int, together: Sequence[tuple[Int64, Batch]]
    ) -> tuple[Int64, Batch, Batch]:
        ids = together[0][0]
        written: Batch = {}
        if self.key is not None:
            written[self.key] = [f"{n:09d}" for n in range(begin, begin + len(ids))]
        for (_, batch), source, convert in zip(together, self.inputs, self._conversions):
            if not batch:  # of a single sample without a partner
                written.update({c.name: [None] for c in source.columns})
                continue
            values = {c.name: batch[c.source] for c in source.columns}
            for name, one in convert.items():
                with prefix_errors(f"column {name!r}", EncodeError):
                    values[name] = one(values[name])
            if source.has_gaps:
                numbers = source.order.ids(begin, begin + len(ids))
                values = {name: with_gaps(column, numbers) for name, column in values.items()}
            written.update(values)
        return ids, self._decode_changed(together[0][1]), written

    @cached_property
    def _conversions(self) -> list[dict[str, Convert]]:
        """Converters to values of the new encodings, by new name, for each input."""
        conversions = []
        for table, source in zip(self._tables, self.inputs):
            plain = [column for column in source.columns if not column.stored]
            specs = {c.name: _source_spec(table.columns[c.source]) for c in plain}
            converters = {
                c.name: make_converter(specs[c.name], c.spec)
                or make_array_converter(specs[c.name], c.spec)
                for c in plain
            }
            conversions.append(
                {name: convert for name, convert in converters.items() if convert is not None}
            )
        return conversions

    def _decode_changed(self, batch: Batch) -> Batch:
        """Decode the columns that the transformation needs."""
        if self.change is None:
            return {}
        decoded: Batch = {}
        for name in self.change.columns:
            encoding, values = self._raw_encodings.get(name), batch[name]
            if encoding is not None:
                with prefix_errors(f"column {name!r}", DataError):
                    values = decode_values(encoding, list(values))
            decoded[name] = values
        return decoded

    @cached_property
    def _raw_encodings(self) -> dict[str, Encoding]:
        """Encodings of columns that the transformation needs and that are read as stored."""
        columns, sampler = self._tables[0].columns, self.change.columns if self.change else ()
        stored = {c.source for c in self.inputs[0].columns if c.stored and c.source in sampler}
        limits = [stream.value_limit for stream in self.inputs[0].streams]
        limit = max((size for size in limits if size is not None), default=None)
        encodings = {}
        for name in sorted(stored):
            specs = dict.fromkeys(column.spec for column in columns[name])
            first, *others = [make_encoding(name, spec) for spec in specs]
            if not all(same_encoding(first, other) for other in others):
                raise ConfigError(
                    f"column {name!r} is needed, and is {' in some shards and '.join(specs)} in others, "
                    "which its stored values do not tell: leave it out, or change each data set by itself"
                )
            encodings[name] = first if limit is None else first.with_max_value_bytes(limit)
        unsafe = sorted(name for name, encoding in encodings.items() if encoding.unsafe)
        if unsafe and not self.allow_unsafe_types:
            raise UnsafeTypeError(
                f"column {unsafe[0]!r} is needed, and decoding it can run code from the data; allow "
                "unsafe types if you trust its writer"
            )
        return encodings


class CopiedBatches(Iterator[Batch]):
    """Batches of the samples of a part to write, without bad ones."""

    def __init__(self, task: CopyTask, begin: int, end: int) -> None:
        self._task = task
        self._bad = BadSamples(task.skip_bad)
        self._ids: Int64 | None = None
        self._batches = self._iterate(task.batches(begin, end, self._bad))

    def __next__(self) -> Batch:
        return next(self._batches)

    def skip(self, row: int, error: Exception) -> None:
        """Leave out a row of the last batch, which cannot be stored.

        Raises:
            BadSampleError: If too many are left out.
        """
        if self._ids is None:  # the output of a program
            raise error
        self._bad.add(*self._task.place(int(self._ids[row])), error)

    def report(self, home: Storage, number: int) -> None:
        """Write the report of the part beside the data set."""
        write_report(home, number, self._bad)

    def _iterate(self, batches: Iterator[tuple[Int64, Batch, Batch]]) -> Iterator[Batch]:
        change = self._task.change
        if change is not None and not change.is_by_sample:
            yield from change.apply(batches)
            return
        for batch in batches:
            yield from self._changed(*batch)

    def _changed(self, ids: Int64, seen: Batch, written: Batch) -> Iterator[Batch]:
        self._ids = ids
        change = self._task.change
        if change is None:
            yield written
            return
        if len(ids) > ROWS_PER_STEP:
            yield from self._divided(ids, seen, written, ROWS_PER_STEP)
            return
        try:
            changed = list(change.apply(iter([(ids, seen, written)])))
        except BAD_SAMPLE_ERRORS as error:
            if len(ids) == 1:
                self.skip(0, error)
                return
        else:
            yield from changed
            return
        yield from self._divided(ids, seen, written, 1)

    def _divided(self, ids: Int64, seen: Batch, written: Batch, rows: int) -> Iterator[Batch]:
        for begin in range(0, len(ids), rows):
            end = begin + rows
            yield from self._changed(
                ids[begin:end],
                batch_rows_of(seen, begin, end),
                batch_rows_of(written, begin, end),
            )


def _readable_order(source: CopyInput) -> SelectionOrder:
    return GaplessOrder(source.order) if source.has_gaps else source.order


def map_table_columns(table: Table, output: Output, columns: Columns) -> list[ColumnMapping]:
    """Return the columns of a new data set from a table.

    Raises:
        ConfigError: If a column does not exist, or cannot be written.
    """
    formats = [schema.format for index in table.indexes for schema in index.schemas]
    own = [format_ for format_ in formats if format_.encodings]
    return map_columns(
        table.columns,
        own[0] if own else formats[0],
        str(output.format),
        decoded=table.decoded_columns,
        encodings=columns.encodings,
        rename=columns.rename,
        select=columns.select,
        drop=columns.drop,
    )


def copy(
    inputs: Sequence[CopyInput],
    tables: Sequence[Table],
    output: Output,
    *,
    what: object,
    on_progress: ProgressCallback,
    change: BatchTransform | None = None,
    encodings: Mapping[str, str] | None = None,
    allow_unsafe_types: bool = False,
    bad: BadSamples | None = None,
) -> WriteResult:
    """Write a new data set.

    Args:
        inputs: Samples and columns of each table.
        tables: The tables.
        output: Location and options, all of them set.
        what: JSON description of the job; only a run with the same description is continued.
        on_progress: Called with the progress of writing.
        change: Transformation, or None.
        encodings: Columns of the new data set, where `change` makes others than those of the inputs.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.
        bad: Samples that are left out so far, and how many may be; None for none.

    Raises:
        OutputExistsError: If another data set exists there.
        ConfigError: If it would overwrite a source, or cannot have these columns.
        WriterError: If a sample cannot be read or written.
    """
    _check_apart(output, tables)
    target = str(output.format)
    plain = [column for source in inputs for column in source.columns]
    if encodings is not None:
        by_name = {column.name: column for column in plain}
        plain = [_column(name, spec, by_name.get(name)) for name, spec in encodings.items()]
    columns = add_key_column(plain, target)
    check_writable(columns, target)
    key = next(
        (column.name for column in columns if not column.source and column not in plain), None
    )
    size = inputs[0].order.size
    row_bytes = sum(table.row_bytes for table in tables)
    size_limit = parse_bytes(output.size_limit, "size_limit")
    rows = samples_per_part(size, row_bytes, size_limit, output.processes)
    of = _digest([what, target, [asdict(c) for c in columns], [t.identity for t in tables]])
    stored = [column.name for column in columns if column.stored]
    parts = [
        {"of": of, "samples": [begin, min(begin + rows, size)]}
        for begin in range(0, max(size, 1), rows)
    ]

    def report(counts: NDArray[np.int64]) -> None:
        on_progress(_writing(counts, parts, size))

    bad = bad or BadSamples(0)
    make = CopyTask(tuple(inputs), key, change, allow_unsafe_types, skip_bad=bad.remaining)
    make.open()
    write_parts(
        make,
        parts,
        columns={column.name: column.spec for column in columns},
        out=output.out,
        processes=0 if len(parts) == 1 and output.engine == "local" else output.processes,
        engine=output.engine,
        exist_ok=output.exist_ok,
        storage_options=output.storage_options,
        on_counts=None if on_progress is ignore_progress else report,
        batched=True,
        format=RawFormat(target, stored) if stored else target,
        compression=output.compression,
        hashes=output.hashes,
        size_limit=output.size_limit,
    )
    return _written(output, len(parts), bad)


def _writing(counts: NDArray[np.int64], parts: Sequence[dict[str, Any]], size: int) -> JobProgress:
    samples = (
        part["samples"][1] - part["samples"][0] if count < 0 else count
        for part, count in zip(parts, counts[:, 0].tolist())
    )
    return JobProgress("writing", sum(samples), size, num_bytes=int(counts[:, 1].clip(0).sum()))


def _source_spec(columns: Sequence[Column]) -> str:
    """Return the encoding of a column; that of its times, if only some shards have times."""
    specs = [column.spec for column in columns]
    return next(filter(is_temporal, specs), specs[0])


def _column(name: str, spec: str, mapping: ColumnMapping | None) -> ColumnMapping:
    return (
        mapping
        if mapping is not None and mapping.spec == spec
        else ColumnMapping(name, spec, name, stored=False)
    )


def _digest(what: object) -> str:
    return hashlib.blake2s(json.dumps(what, sort_keys=True).encode(), digest_size=8).hexdigest()


def _check_apart(output: Output, tables: Sequence[Table]) -> None:
    """Refuse to write over or above a source, or among other files."""
    folders = {folder for table in tables for folder in table.folders}
    targets = {("", target) for _, url in folders for target in _link_targets(url)}
    sources = {RealLocation.of(*folder) for folder in folders | targets}
    for place in output_locations(output.out):
        storage = open_storage(place, output.storage_options)
        location = RealLocation.of(storage.endpoint, storage.url)
        if any(location.contains(source) for source in sources):
            raise ConfigError(f"{storage.url} is or contains a source; choose another location")
        if not (storage.exists(PLAN_NAME) or storage.exists(INDEX_NAME)):
            check_empty(storage)


def _link_targets(url: str) -> set[str]:
    """Return the directories of files that are symbolic links in a local directory."""
    path = local_path(url)
    if path is None or not path.is_dir():
        return set()
    with os.scandir(path) as entries:
        return {str(Path(entry.path).resolve().parent) for entry in entries if entry.is_symlink()}


def _written(output: Output, parts: int, bad: BadSamples) -> WriteResult:
    storage = open_storage(output_locations(output.out)[-1], output.storage_options)
    index, _ = read_index(storage, _INDEX_RETRIES)
    reported = range(parts if bad.remaining else 0)
    found = [
        *bad.found,
        *(sample for number in reported for sample in read_report(storage, number)),
    ]
    num_bytes = int(index.stored_shard_bytes.sum())
    return WriteResult(storage.url, len(index), index.size, num_bytes, tuple(found))
