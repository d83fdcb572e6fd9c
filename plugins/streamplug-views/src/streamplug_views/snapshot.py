"""A view in memory: which rows of which opened data sets it has, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import cast

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError
from streamplug.index import FileTable, Index, Schema, find_mismatches, offsets_from_sizes
from streamplug.interfaces import Column, Decoder
from streamplug.plan import RowSelection
from streamplug.read import Reader, SampleReader, apply_decoders, limit_values
from streamplug.source import OpenStream
from streamplug.types import Int64
from streamplug_views.manifest import SourceEntry, Step
from streamplug_views.readers import ColumnGroup, ConcatReader, JoinedReader
from streamplug_views.row_map import RowMapping


@dataclass(frozen=True)
class OpenSource:
    """A source whose index has been read; `url` is its absolute location."""

    url: str
    source: SourceEntry
    opened: OpenStream

    @property
    def index(self) -> Index:
        """Index of the source."""
        return self.opened.index

    @property
    def columns(self) -> list[str]:
        """Names of the columns that all shards have."""
        schemas = self.index.schemas
        names = [column.name for column in schemas[0].columns] if schemas else []
        return [n for n in names if all(schema.column(n) is not None for schema in schemas)]


@dataclass(frozen=True)
class GroupState:
    """Columns of one source in a part; the attributes are those of `Group`, with rows that are opened.

    Attributes:
        starts: First position in each shard of the source, and the number of positions; None if not known.
        starts_file: File of the view with `starts`, if it has one.
    """

    source: int
    rows: RowMapping
    columns: Mapping[str, str]
    starts: Int64 | None = None
    starts_file: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """Rows and columns of opened sources.

    Attributes:
        sources: The data sets.
        parts: Groups of columns of each part; the first one determines shards.
        steps: Operations that made it.
    """

    sources: Sequence[OpenSource]
    parts: Sequence[Sequence[GroupState]]
    steps: Sequence[Step] = field(default_factory=list)

    @property
    def bounds(self) -> list[int]:
        """First position of each part, and the number of positions."""
        return list(accumulate((len(groups[0].rows) for groups in self.parts), initial=0))

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.bounds[-1]

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the view."""
        return [name for group in self.parts[0] for name in group.columns.values()]

    def with_step(self, step: str) -> Snapshot:
        """Return the snapshot with a further step."""
        return replace(self, steps=[*self.steps, Step(step, self.size)])

    def with_decoders(self, decoders: Mapping[str, Decoder], where: str) -> Snapshot:
        """Return the snapshot with decoders by column of the view.

        Raises:
            ConfigError: If the view has no such column, or a decoder does not fit it.
        """
        check_names(f"decoders={list(decoders)}", where, decoders, self.columns)
        if not decoders:
            return self
        sources = list(self.sources)
        parts = []
        for groups in self.parts:
            changed = []
            for group in groups:
                own = {old: decoders[new] for old, new in group.columns.items() if new in decoders}
                source = sources[group.source]
                limit = source.opened.stream.value_limit
                index = limit_values(apply_decoders(source.index, own), limit)
                # A source of its own, as another part may read the same columns by other names.
                sources.append(replace(source, opened=replace(source.opened, index=index)))
                changed.append(replace(group, source=len(sources) - 1))
            parts.append(changed)
        return replace(self, sources=sources, parts=parts)

    def check_types(self, other: Snapshot, what: str) -> None:
        """Raise ConfigError if columns of another snapshot have other types, so that both cannot be read."""
        schemas = (
            snapshot.index("").schemas[:1] for snapshot in (self, other)
        )  # none without shards
        for first, second in zip(*schemas):
            for mismatch in find_mismatches(first, second):
                both = "it", "the view"
                raise ConfigError(
                    f"{what}: {mismatch.describe(*both)}; both must have the same types: "
                    f"{mismatch.remedy(*both)}"
                )

    def reader(
        self, columns: Sequence[str] | None, selection: RowSelection | None = None
    ) -> SampleReader:
        """Return a reader of all samples.

        Args:
            columns: Columns to read; None for all.
            selection: Positions that will be read, for an access that depends on them; None for all.
        """
        readers = [
            self._part_reader(groups, columns, selection, bounds)
            for groups, bounds in zip(self.parts, pairwise(self.bounds))
        ]
        return readers[0] if len(readers) == 1 else ConcatReader(readers, one_stream=True)

    def _part_reader(
        self,
        groups: Sequence[GroupState],
        columns: Sequence[str] | None,
        selection: RowSelection | None,
        bounds: tuple[int, int],
    ) -> SampleReader:
        joined: list[ColumnGroup] = []
        main: ColumnGroup | None = None
        for group in groups:
            names = {
                old: new for old, new in group.columns.items() if columns is None or new in columns
            }
            if not names and group is not groups[0]:
                continue
            opened = self.sources[group.source].opened
            rows = group.rows
            if isinstance(rows, RowSelection):
                if selection is not None:
                    rows = _SelectedPart(rows, selection, bounds)
                opened = replace(opened, selection=rows)
            index = opened.index
            reader = Reader([index.starts], [opened.shards(list(names or group.columns) or None)])
            column_group = ColumnGroup(
                cast("SampleReader", reader),
                group.rows,
                names,
                renames=any(old != new for old, new in names.items()),
            )
            main = main or column_group
            if names:
                joined.append(column_group)
        if main is None or not joined:
            raise ConfigError(f"columns={columns}: the view has none of them")
        return JoinedReader(joined, main, self.starts_of(groups))

    def starts_of(self, groups: Sequence[GroupState]) -> Int64:
        """Return the first position in each shard of a part, and the number of positions."""
        main = groups[0]
        if main.starts is not None:
            return main.starts
        rows = cast("RowSelection", main.rows)  # only added columns have rows in any order
        return rows.ranks(self.sources[main.source].index.starts)

    def index(self, where: str) -> Index:
        """Return an index with the shards and the columns of the view."""
        sizes: list[Int64] = []
        schemas: list[Schema] = []
        schema_of: list[Int64] = []
        nbytes: list[Int64] = []
        for groups in self.parts:
            main = self.sources[groups[0].source].index
            sizes.append(np.diff(self.starts_of(groups)))
            schema_of.append(np.asarray(main.schema_of, np.int64) + len(schemas))
            added = [column for group in groups[1:] for column in self._columns_of(group)]
            for schema in main.schemas:
                own = _renamed(schema, groups[0].columns)
                schemas.append(replace(schema, columns=(*own, *added), compression=None))
            share = sizes[-1] / np.maximum(main.samples, 1)
            nbytes.append((main.raw_shard_bytes * share).astype(np.int64))
        tables = {"raw_data": FileTable(_Names(self), np.concatenate(nbytes), _NoHashes())}
        starts = offsets_from_sizes(np.concatenate(sizes))
        return Index(starts, schemas, np.concatenate(schema_of), tables, where=where)

    def _columns_of(self, group: GroupState) -> list[Column]:
        schemas = self.sources[group.source].index.schemas
        return _renamed(schemas[0], group.columns) if schemas else []

    def shard_name(self, shard: int) -> str:
        """Return the name of the file of a shard of the view, in its source."""
        for groups in self.parts:
            source = self.sources[groups[0].source]
            if shard < len(source.index):
                return next((raw.basenames[shard] for raw, _ in source.index.file_tables), "")
            shard -= len(source.index)
        return ""


def _renamed(schema: Schema, names: Mapping[str, str]) -> list[Column]:
    found = ((schema.column(old), new) for old, new in names.items())
    return [replace(column, name=new) for column, new in found if column is not None]


class _SelectedPart(RowSelection):
    """Rows of a source at the selected positions of a part; nothing is computed until it is used."""

    def __init__(
        self, rows: RowSelection, selection: RowSelection, bounds: tuple[int, int]
    ) -> None:
        """Select rows.

        Args:
            rows: Rows of the part.
            selection: Selected positions in the view.
            bounds: First position of the part in the view, and the position behind its last.
        """
        self._rows, self._selection, self._first = rows, selection, bounds[0]
        ranks: list[int] = selection.ranks(np.array(bounds)).tolist()
        self._start, self._stop = ranks

    def __len__(self) -> int:
        return self._stop - self._start

    def rows(self, positions: Int64) -> Int64:
        return self._rows.rows(self._selection.rows(positions + self._start) - self._first)

    def row(self, position: int) -> int:
        return self._rows.row(self._selection.row(position + self._start) - self._first)

    def ranks(self, bounds: Int64) -> Int64:
        return self._selection.ranks(self._rows.ranks(bounds) + self._first) - self._start


@dataclass(frozen=True)
class _Names:
    """Names of the shards' files."""

    snapshot: Snapshot

    def __getitem__(self, shard: int) -> str:
        return self.snapshot.shard_name(shard)


class _NoHashes:
    """The parts of files that a view has are not hashed."""

    def __getitem__(self, shard: int) -> Mapping[str, str]:
        return {}
