"""Options and results of jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any, TypeAlias

from streamplug.config import check_flags, parse_bytes, suggest_keywords, whole_number
from streamplug.errors import ConfigError
from streamplug.index import chosen_hashes
from streamplug.interfaces import Engine, WritableFormat
from streamplug.stream import Stream
from streamplug_tools.bad_samples import BadSample
from streamplug_tools.column_mapping import format_name
from streamplug_tools.row_access import Table


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a task of a job.

    Attributes:
        task: What is done, such as ``"writing"``. A job may have several tasks.
        done: Finished amount.
        total: Total amount.
        unit: What is counted.
        num_bytes: Bytes processed so far, not compressed; 0 if they are not counted.
    """

    task: str
    done: int
    total: int
    unit: str = "samples"
    num_bytes: int = 0


ProgressCallback: TypeAlias = "Callable[[JobProgress], None]"
"""Called from time to time, while a data set is written from another thread."""
Location: TypeAlias = "str | PathLike[str]"
Sources: TypeAlias = "Location | Stream | Sequence[Location | Stream]"


def streams(sources: Sources) -> list[Stream]:
    """Return the streams of one or several sources."""
    given: Any = sources  # unchecked so far
    if isinstance(given, (str, PathLike, Stream)) or not isinstance(given, Iterable):
        given = [given]
    return [single_stream(source) for source in given]


def job_streams(sources: Sources) -> list[Stream]:
    """Return the streams of the sources of a job, or of a view, that takes each of their samples once.

    Raises:
        ConfigError: If one has a weight, which is for the epochs of a run.
    """
    sources = streams(sources)
    for stream in sources:
        for name, value in stream.weight.options.items():
            raise ConfigError(
                f"{stream!r}: {name}={value!r} is for the epochs of a run; jobs and views take each sample "
                f"once: leave {name}= out, or give select= the rows to take"
            )
    return sources


def single_stream(source: Any) -> Stream:
    """Return the stream of one source.

    Raises:
        ConfigError: If it is neither a path, a URL nor a stream, such as a list of them.
    """
    if isinstance(source, Stream):
        return source
    if not isinstance(source, (str, PathLike)):
        raise ConfigError(
            f"expected a path, a URL or a Stream to read from, got {type(source).__name__}"
        )
    return Stream(remote=fspath(source))


def whole_stream(source: Any) -> Stream:
    """Return the stream of one source, all of which is described.

    Raises:
        ConfigError: As `single_stream`, or if it selects rows.
    """
    stream = single_stream(source)
    if stream.select is not None:
        raise ConfigError(
            f"{stream.url}: select=: a whole data set is described; leave it out, or describe a view of the "
            "selected rows"
        )
    return stream


def check_count(name: str, value: Any) -> int:
    """Return a whole number of at least 0.

    Raises:
        ConfigError: If it is something else, also None.
    """
    count: int | None = whole_number(name, value, 0)
    if count is None:
        raise ConfigError(f"{name}=None: must be a whole number of at least 0")
    return count


def ignore_progress(progress: JobProgress) -> None:
    """Do nothing."""


@suggest_keywords
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns that a new data set takes from another, and their encodings.

    Attributes:
        encodings: Encodings by new name; by default those of the source or the nearest ones.
        rename: New names by old name.
        select: Columns to take; None for all.
        drop: Columns to leave out.
        allow_unsafe_types: Whether to decode columns whose decoding can run code. Columns whose encoding
            stays are not decoded.
    """

    encodings: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    select: Sequence[str] | None = None
    drop: Sequence[str] = ()
    allow_unsafe_types: bool = False

    def __post_init__(self) -> None:
        check_flags(allow_unsafe_types=self.allow_unsafe_types)
        for name in ("encodings", "rename"):
            mapping: Any = getattr(self, name)
            if not isinstance(mapping, Mapping) or not _are_names([*mapping, *mapping.values()]):
                raise ConfigError(f"{name}={mapping!r:.60}: expected a dict of text by column name")
        for name in ("select", "drop"):
            names: Any = getattr(self, name)
            if names is None and name == "select":
                continue
            if isinstance(names, str):
                raise ConfigError(
                    f"{name}={names!r:.60}: expected a list of names, such as [{names!r:.60}]"
                )
            if not isinstance(names, Collection) or not _are_names(names):
                raise ConfigError(f"{name}={names!r:.60}: expected a list of names")

    def takes(self, name: str) -> bool:
        """Return whether all sources must have a column, unless it is dropped."""
        return self.select is None or name in self.select

    def keeps(self, name: str) -> bool:
        """Return whether a column of the source, by its name there, is written."""
        return self.takes(name) and name not in self.drop


def _are_names(values: Collection[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


ALL_COLUMNS = Columns()
"""All columns, unchanged."""


@suggest_keywords
@dataclass(frozen=True)
class Output:
    """Location and options of a new data set; None keeps the option of the source.

    Attributes:
        out: A local path, a URL, or a pair (local path, URL).
        format: Name of the format.
        compression: Name, and level after a colon; ``"none"`` for none.
        hashes: Hash algorithms of the files; an empty sequence for none. If None and the source has none,
            the default of `Writer`.
        size_limit: Size limit of a raw shard.
        processes: Number of processes; None for one per processor, 0 for this process. The samples are
            divided into at least as many parts, each with shards of its own, so a call with another number
            does not go on with the parts of this one.
        engine: Engine that runs the writers, or its name: ``"local"`` for those processes.
        exist_ok: Whether to replace an existing data set.
        storage_options: Options of the storage.
    """

    out: Any
    format: str | None = None
    compression: str | None = None
    hashes: Sequence[str] | None = None
    size_limit: float | str = 1 << 26
    processes: int | None = None
    engine: str | Engine = "local"
    exist_ok: bool = False
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_flags(exist_ok=self.exist_ok)
        whole_number("processes", self.processes, 0)  # it is not used for a single part

    def like(self, table: Table) -> Output:
        """Fill in None from the options of a table."""
        first = next(schema for index in table.indexes for schema in index.schemas)
        name = format_name(first.entry)
        if self.format is None and not isinstance(first.format, WritableFormat):
            raise ConfigError(
                f"format {name.partition(':')[0]} can only be read; name another one with format=, such as "
                "mds"
            )
        compression = first.compression if self.compression is None else self.compression
        hashes = (first.entry.get("hashes") or None) if self.hashes is None else self.hashes
        return replace(
            self,
            format=self.format or name,
            compression=None if compression == "none" else compression,
            hashes=chosen_hashes(hashes),
            size_limit=parse_bytes(self.size_limit, "size_limit"),
        )


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of a job: the new data set.

    Attributes:
        url: URL.
        shards: Number of shards.
        samples: Number of samples.
        bytes: Stored bytes of all files.
        bad: Samples that were left out, see `BadSample`.
    """

    url: str
    shards: int
    samples: int
    bytes: int
    bad: tuple[BadSample, ...] = ()
