"""Verification of all files and samples of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
from streamplug_files import MultiFileFormat

from streamplug.cache import ShardStore, cached_files
from streamplug.config import check_flags, whole_number
from streamplug.errors import ConfigError, PluginError, StreamplugError
from streamplug.index import (
    ColumnMismatch,
    Index,
    find_shard_mismatches,
    unpack_value_sizes,
)
from streamplug.interfaces import Column, ShardReader, lazy_values
from streamplug.read import MappedFiles
from streamplug.source import ShardFiles
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory, call_with_retries, map_threads, verify_file
from streamplug.types import ColumnValues, FileInfo
from streamplug_tools.options import JobProgress, ProgressCallback, ignore_progress

_MAX_ROWS_PER_READ = 1024
_MAX_PROBLEMS_PER_SHARD = 20
_SHARDS_PER_THREAD = 16  # submitted at a time
_NOT_OF_DATA = (ConfigError, PluginError)  # such as a library that is not installed


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect of a data set.

    Attributes:
        shard: Number of the shard.
        file: Base name of its first raw file; empty if the index does not tell. Where each sample is a file,
            the name of that. If it is a file with sizes of values, its name, and `shard` is the first of its
            shards.
        index: Position of the damaged sample in the shard; None if the whole shard is affected, or the rest
            of it was not decoded.
        error: Error message.
    """

    shard: int
    file: str
    index: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of the verification of a data set.

    Attributes:
        url: URL of the data set.
        shards: Number of shards.
        samples: Number of samples.
        bytes: Stored bytes of all files.
        problems: Defects, sorted by shard; empty if there are none. Of a shard with 20 damaged samples, the
            rest is not decoded, which is a problem of its own.
        undecoded: Columns that were not decoded because decoding them can run code.
        checksums: Names of the hash algorithms whose checksums were verified.
        without_checksums: Number of shards with a file without checksum, in which only damage that prevents
            decoding is found.
    """

    url: str
    shards: int
    samples: int
    bytes: int
    problems: tuple[Problem, ...]
    undecoded: tuple[str, ...]
    checksums: tuple[str, ...]
    without_checksums: int

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class _Checked:
    bytes: int
    problems: list[Problem]
    checksums: set[str]
    has_all_checksums: bool


def verify(
    stream: Stream,
    *,
    num_threads: int = 4,
    allow_unsafe_types: bool = False,
    on_progress: ProgressCallback = ignore_progress,
) -> Verified:
    """Download every file of a data set, verify sizes and all checksums, and decode every sample.

    Values that are decoded on first use, such as images and videos, are decoded to the end. Also check that
    all shards have the same columns. Files are downloaded to the directory for temporary files, which needs
    room for as many shards as there are threads. The data set and its caches are not changed.

    Args:
        stream: The data set; its `local` is read only if it has no remote.
        num_threads: Number of shards that are downloaded and verified in parallel.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        ConfigError: If `num_threads` is not a positive whole number, the stream selects rows, or a library
            that the values need is not installed.
        PluginError: If a plugin that the data set needs is missing or fails.
        StorageError: If the index cannot be read; later failures are problems in the result.
        InvalidIndexError: If the index is invalid.
    """
    threads = whole_number("num_threads", num_threads, 1) or 1
    check_flags(allow_unsafe_types=allow_unsafe_types)
    if not isinstance(stream, Stream):
        raise ConfigError(
            f"expected a Stream to verify, got {type(stream).__name__}; give Stream(remote=…)"
        )
    if stream.select is not None:
        raise ConfigError("select=: every sample of a data set is verified, so leave it out")
    with TemporaryDirectory() as to:
        fetched = replace(
            stream,
            remote=stream.remote or stream.local,
            local=str(to),
            keep_zip=True,
            validate_hash=None,
            cache_limit=None,
            access="shard",
        )
        opened = fetched.open()
        if opened.files is None:
            raise ConfigError(
                f"{stream.url} is a view or a table: verify the data sets that it refers to"
            )
        index, store = opened.index, opened.store
        folder = to / (stream.split or "")
        shards = _first_of_each_file(index)
        counts = _Counts(int(index.samples[shards].sum()), on_progress)
        check = _Check(index, store, folder, counts, allow_unsafe_types=allow_unsafe_types)
        problems = [_disagreeing(index, *mismatch) for mismatch in find_shard_mismatches(index)]
        stored, without = 0, 0
        checksums: set[str] = set()
        for start in range(0, len(shards), _SHARDS_PER_THREAD * threads):
            some = shards[start : start + _SHARDS_PER_THREAD * threads]
            for checked in map_threads(check, some, threads):
                stored += checked.bytes
                problems += checked.problems
                checksums |= checked.checksums
                without += not checked.has_all_checksums
        for file in index.value_sizes:
            stored += file.bytes
            checksums |= file.hashes.keys()
            problems += _damaged_sizes(index, opened.shard_files, file, to / "value-sizes")
    unsafe = {c.name for schema in index.schemas for c in schema.columns if c.encoding.unsafe}
    return Verified(
        url=opened.shown_url,
        shards=len(index),
        samples=index.size,
        bytes=stored,
        problems=tuple(sorted(problems, key=lambda problem: problem.shard)),
        undecoded=() if allow_unsafe_types else tuple(sorted(unsafe)),
        checksums=tuple(sorted(checksums)),
        without_checksums=without,
    )


def _disagreeing(index: Index, shard: int, mismatch: ColumnMismatch) -> Problem:
    error = f"{mismatch.describe('it', 'shard 0')}; all shards need the same columns"
    return Problem(shard, index.shard(shard).basename, None, error)


def _damaged_sizes(
    index: Index, files: ShardFiles, file: FileInfo, path: Path
) -> Iterator[Problem]:
    """Yield the problem of a file with sizes of values, if there is one; it is downloaded to a path."""

    def fetch() -> None:
        files.storage.download(file.basename, path)
        for algorithm in file.hashes or (None,):
            verify_file(path, file, algorithm, file.basename)

    try:
        call_with_retries(fetch, files.retries)
        unpack_value_sizes(path.read_bytes())
    except _NOT_OF_DATA:
        raise
    except (StreamplugError, OSError) as error:
        # A writer names it like the first of its shards.
        names = (
            f"{index.shard(shard).basename.rpartition('.')[0]}." for shard in range(len(index))
        )
        first = (shard for shard, name in enumerate(names) if file.basename.startswith(name))
        yield Problem(next(first, 0), file.basename, None, str(error))
    finally:
        path.unlink(missing_ok=True)


def _first_of_each_file(index: Index) -> list[int]:
    """Return the shards to verify: only the first of several that are the same file."""
    names = [raw.basenames for raw, _ in index.file_tables]
    first: dict[tuple[str, ...], int] = {}
    for shard in range(len(index)):
        first.setdefault(tuple(table[shard] for table in names), shard)
    return list(first.values())


class _Counts:
    """Samples and raw bytes verified so far, counted by several threads."""

    def __init__(self, total: int, on_progress: ProgressCallback) -> None:
        self._total, self._on_progress = total, on_progress
        self._samples = self._bytes = 0
        self._lock = Lock()

    def add(self, samples: int, num_bytes: int) -> None:
        with self._lock:
            self._samples += samples
            self._bytes += num_bytes
            self._on_progress(
                JobProgress("verifying", self._samples, self._total, num_bytes=self._bytes)
            )


class _Check:
    def __init__(
        self,
        index: Index,
        store: ShardStore,
        folder: Path,
        counts: _Counts,
        *,
        allow_unsafe_types: bool,
    ) -> None:
        self._index, self._store, self._folder, self._counts = index, store, folder, counts
        self._columns = [
            [c for c in schema.columns if allow_unsafe_types or not c.encoding.unsafe]
            for schema in index.schemas
        ]

    def __call__(self, shard: int) -> _Checked:
        info = self._index.shard(shard)
        files = info.files.values()
        name, raw_bytes = info.basename, info.raw_bytes
        seen = 0

        def count(samples: int) -> None:
            nonlocal seen
            before, seen = seen, seen + samples
            size = max(info.samples, 1)
            self._counts.add(samples, raw_bytes * seen // size - raw_bytes * before // size)

        downloaded = {self._folder / file.zip.basename: file.zip for file in files if file.zip}
        try:
            paths = self._store.ensure(shard)
            downloaded |= {paths[role]: file.raw for role, file in info.files.items()}
            for path, file in downloaded.items():
                for algorithm in file.hashes or (None,):
                    verify_file(path, file, algorithm, path.name)
            schema = self._index.schema(shard)
            reader = schema.format.open(info, MappedFiles(paths, {}).data, schema.columns)
            damaged = self._samples(reader, self._columns[self._index.schema_of[shard]], count)
            # Where each sample is a file, the shard itself has none that users know.
            name_of = reader.name_of if isinstance(schema.format, MultiFileFormat) else None
            problems = [
                Problem(shard, (name_of and row is not None and name_of(row)) or name, row, error)
                for row, error in damaged
            ]
        except _NOT_OF_DATA:
            raise
        except (StreamplugError, OSError) as error:
            problems = [Problem(shard, name, None, str(error).removeprefix(f"shard {shard}: "))]
        finally:
            count(info.samples - seen)  # of a shard that cannot be read
            for path in downloaded:
                with suppress(OSError):
                    path.unlink()
        stored = cached_files(info, self._store.derived).values()
        return _Checked(
            sum((file.zip or file.raw).bytes for file in stored),
            problems,
            {
                hash_
                for columns in stored
                for file in (columns.raw, columns.zip)
                if file
                for hash_ in file.hashes
            },
            all(f.raw.hashes or (f.zip and f.zip.hashes) for f in stored),
        )

    def _samples(
        self, reader: ShardReader, columns: list[Column], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int | None, str]]:
        """Decode samples; yield position and error of damaged ones, at last None if it stops early."""
        count = 0
        for start in range(0, len(reader), _MAX_ROWS_PER_READ):
            rows = np.arange(start, min(start + _MAX_ROWS_PER_READ, len(reader)))
            on_rows(len(rows))
            batch_error = None
            try:
                values = zip(columns, reader.take(rows, columns))
                damaged = _lazy_damage(reader, rows.tolist(), values)
            except _NOT_OF_DATA:
                raise
            except Exception as error:  # noqa: BLE001 - reading row by row finds the damaged ones
                batch_error = str(error)
                damaged = _row_damage(reader, rows.tolist(), columns)
            before = count
            for row, row_error in damaged:
                yield row, row_error
                count += 1
                if count == _MAX_PROBLEMS_PER_SHARD and row + 1 < len(reader):
                    yield (
                        None,
                        f"{count} samples are damaged; those after sample {row} were not decoded",
                    )
                    return
            if count == before and batch_error is not None:
                yield rows[0].item(), f"{len(rows)} samples together: {batch_error}"


def _row_damage(
    reader: ShardReader, rows: Sequence[int], columns: Sequence[Column]
) -> Iterator[tuple[int, str]]:
    """Decode samples one by one; yield the damaged ones, and their errors."""
    for row in rows:
        try:
            sample = reader.row(row, columns)
        except _NOT_OF_DATA:
            raise
        except Exception as error:  # noqa: BLE001 - encodings raise anything for damaged data
            yield row, str(error)
        else:
            yield from _lazy_damage(reader, [row], [(c, [sample[c.name]]) for c in columns])


def _lazy_damage(
    reader: ShardReader, rows: Sequence[int], columns: Iterable[tuple[Column, ColumnValues]]
) -> Iterator[tuple[int, str]]:
    """Decode those values of samples that are decoded on first use; yield as `_row_damage`."""
    lazy = [(column, list(values)[::-1]) for column, values in columns if column.encoding.lazy]
    for row in rows if lazy else ():
        # Taken out, so that what was decoded does not stay in memory.
        for column, value in [(column, values.pop()) for column, values in lazy]:
            try:
                for one in lazy_values(value):
                    one.decode_whole()
            except _NOT_OF_DATA:
                raise
            except Exception as error:  # noqa: BLE001 - decoders raise anything for damaged data
                name = "" if reader.name_of is None else f" ({reader.name_of(row)})"
                yield row, f"sample {row}{name}, column {column.name!r}: {error}"
                break
