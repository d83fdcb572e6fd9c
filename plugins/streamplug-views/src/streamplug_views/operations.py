"""Operations on views, which are applied to a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from numbers import Number
from typing import Any

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError
from streamplug.interfaces import public_url
from streamplug.plan import RowRange, RowSelection
from streamplug.types import Int64
from streamplug_views.evaluation import evaluate, match_keys, read_keys
from streamplug_views.row_map import MISSING, RowMap, RowMapping
from streamplug_views.row_set import make_row_set
from streamplug_views.snapshot import GroupState, Snapshot
from streamplug_views.workspace import Context, open_location

_ROWS_PER_BLOCK = 1 << 20
_KEY_KINDS: Mapping[str, tuple[type, ...]] = {
    "times": (date, np.datetime64),
    "durations": (timedelta, np.timedelta64),
    "numbers": (Number, np.bool_),
    "text": (str,),
    "bytes": (bytes, memoryview),
}
"""Types whose values may be equal; the first that fits counts, as NumPy takes durations for numbers."""


class Operation(ABC):
    """An operation; its text is a step of the manifest."""

    @abstractmethod
    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        """Return the snapshot after the operation.

        Raises:
            StreamplugError: If it cannot be applied.
        """

    @abstractmethod
    def __str__(self) -> str: ...


def keep_positions(
    snapshot: Snapshot, blocks: Iterator[Int64] | RowSelection, context: Context
) -> Snapshot:
    """Return a snapshot with the samples at ascending positions."""
    if not isinstance(blocks, RowSelection):
        blocks = make_row_set(blocks, context.workspace.new_file("rows"))
    kept, bounds, parts = blocks, snapshot.bounds, []
    cuts = kept.ranks(np.array(bounds))
    for number, groups in enumerate(snapshot.parts):
        start, stop = int(cuts[number]), int(cuts[number + 1])
        part = _PartPositions(kept, start, stop, bounds[number])
        if len(part) == len(groups[0].rows):
            parts.append(groups)
        elif len(part) or (number + 1 == len(snapshot.parts) and not parts):
            parts.append([_compose(group, part, snapshot, context) for group in groups])
    return replace(snapshot, parts=parts)


@dataclass(frozen=True)
class _PartPositions:
    """Kept positions of a part: those of `kept` from `start` to `stop`, less `first`."""

    kept: RowSelection
    start: int
    stop: int
    first: int

    def __len__(self) -> int:
        return self.stop - self.start

    def blocks(self) -> Iterator[Int64]:
        for begin in range(self.start, self.stop, _ROWS_PER_BLOCK):
            positions = np.arange(begin, min(begin + _ROWS_PER_BLOCK, self.stop))
            yield self.kept.rows(positions) - self.first


def _compose(
    group: GroupState, kept: _PartPositions, snapshot: Snapshot, context: Context
) -> GroupState:
    rows: RowMapping
    if isinstance(group.rows, RowMap):
        limit = snapshot.sources[group.source].index.size
        rows = context.workspace.write_map(map(group.rows.rows, kept.blocks()), len(kept), limit)
    else:
        blocks = map(group.rows.rows, kept.blocks())
        rows = make_row_set(blocks, context.workspace.new_file("rows"))
    return GroupState(group.source, rows, group.columns)


@dataclass(frozen=True)
class Where(Operation):
    """Keep the samples for which an expression is true."""

    expression: str
    columns: Sequence[str] | None = None

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        kept = evaluate(snapshot, self.expression, self.columns, context)
        return keep_positions(snapshot, kept, context)

    def __str__(self) -> str:
        return f"where {self.expression}"


@dataclass(frozen=True)
class Select(Operation):
    """Keep rows, or leave them out."""

    rows: RowSelection
    exclude: bool = False

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        self.rows.check(snapshot.size, "the view")
        kept = _complement(self.rows, snapshot.size) if self.exclude else self.rows
        return keep_positions(snapshot, kept, context)

    def __str__(self) -> str:
        return f"{'exclude' if self.exclude else 'select'} {len(self.rows):,} rows"


def _complement(rows: RowSelection, size: int) -> Iterator[Int64]:
    for first in range(0, size, _ROWS_PER_BLOCK):
        last = min(first + _ROWS_PER_BLOCK, size)
        mask = np.ones(last - first, bool)
        start, stop = rows.ranks(np.array([first, last])).tolist()
        mask[rows.rows(np.arange(start, stop)) - first] = False
        yield np.flatnonzero(mask) + first


@dataclass(frozen=True)
class ExcludeKeys(Operation):
    """Leave out the samples whose key is one of a list, or a key of another data set."""

    keys: Sequence[Any] | str
    on: str
    format: str | None = None

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        blocks: Iterable[Sequence[Any]]
        if isinstance(self.keys, str):
            other = open_location(self.keys, self.format, context.stream)
            blocks = (keys for _, keys in read_keys(other, self.on, context))
        else:
            blocks = [self.keys]
        unwanted: set[Any] = set()
        types: set[type] = set()
        for keys in blocks:
            with self._hashing_keys():
                unwanted.update(map(_hashable, keys))
            types.update(map(type, keys))

        def kept() -> Iterator[Int64]:
            own_types: set[type] = set()
            for numbers, keys in read_keys(snapshot, self.on, context):
                with self._hashing_keys():
                    is_kept = [_hashable(key) not in unwanted for key in keys]
                own_types.update(map(type, keys))
                yield numbers[is_kept]
            excluded, own = _key_kinds(types), _key_kinds(own_types)
            if excluded and own and excluded.isdisjoint(own):
                raise ConfigError(
                    f"{self}: the keys are {' and '.join(sorted(excluded))}, those of the view "
                    f"{' and '.join(sorted(own))}, so no sample would be left out; convert the keys"
                )

        return keep_positions(snapshot, kept(), context)

    @contextmanager
    def _hashing_keys(self) -> Iterator[None]:
        try:
            yield
        except TypeError as error:
            raise ConfigError(
                f"{self}: keys must be numbers, text or others that are hashable: {error}"
            ) from None

    def __str__(self) -> str:
        keys = self.keys
        what = public_url(keys) if isinstance(keys, str) else f"{len(keys):,} keys"
        return f"exclude {what} on {self.on}"


def _key_kinds(types: Iterable[type]) -> set[str]:
    """Return the kinds of keys of some types; keys of different kinds are never equal. None is of no kind."""
    return {
        next((kind for kind, known in _KEY_KINDS.items() if issubclass(type_, known)), str(type_))
        for type_ in types
        if type_ is not type(None)
    }


def _hashable(key: Any) -> Any:
    """Return a time as a value that is equal for equal times of any type and unit, other keys as they are."""
    if isinstance(key, date):  # also a datetime
        key = np.datetime64(key)
    elif isinstance(key, timedelta):
        key = np.timedelta64(key)
    if not isinstance(key, (np.datetime64, np.timedelta64)):
        return key
    kind = key.dtype.kind
    seconds = key.astype(f"{kind}8[s]")
    rest = (key - seconds).astype("m8[ns]")
    return kind, int(seconds.astype(np.int64)), int(rest.astype(np.int64))


@dataclass(frozen=True)
class Sample(Operation):
    """Keep a random share of the samples: of each million of them, and so of all."""

    share: float
    seed: int

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        size = snapshot.size

        def kept() -> Iterator[Int64]:
            for first in range(0, size, _ROWS_PER_BLOCK):
                last = min(first + _ROWS_PER_BLOCK, size)
                generator = np.random.Generator(np.random.PCG64([self.seed, first]))
                count = round(self.share * last) - round(self.share * first)
                yield np.sort(generator.choice(last - first, count, replace=False)) + first

        return keep_positions(snapshot, kept(), context)

    def __str__(self) -> str:
        return f"sample {self.share} with seed {self.seed}"


@dataclass(frozen=True)
class Add(Operation):
    """Add columns of another data set, sample by sample or by a key."""

    url: str
    columns: Sequence[str] | None = None
    on: str | None = None
    missing: str = "error"
    format: str | None = None

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        other = open_location(self.url, self.format, context.stream)
        names = [name for name in other.columns if name != self.on]
        url = public_url(self.url)
        check_names(f"add columns={self.columns}", url, self.columns or (), other.columns)
        names = [name for name in other.columns if name in self.columns] if self.columns else names
        if taken := sorted(set(names) & set(snapshot.columns)):
            raise ConfigError(
                f"{self}: the view has columns {taken} already; choose others with columns=, or "
                "rename one first"
            )
        matches: RowMapping
        if self.on is None:
            if other.size != snapshot.size:
                raise ConfigError(
                    f"{self}: it has {other.size:,} samples, the view has {snapshot.size:,}; add "
                    "columns by a key with on="
                )
            matches = RowRange(0, other.size)
        else:
            matches, absent = match_keys(snapshot, other, self.on, url, context)
            if absent is not None and self.missing == "error":
                raise ConfigError(
                    f"{self}: sample {absent[0]} of the view has the key {absent[1]!r:.80}, which it does "
                    "not have; pass missing='drop' or missing='null'"
                )
            if absent is not None and self.missing == "drop":
                snapshot, matches = _drop_missing(snapshot, matches, context)
        sources = [*snapshot.sources, *other.sources]
        parts = []
        for number, groups in enumerate(snapshot.parts):
            first, last = snapshot.bounds[number : number + 2]
            added = _added_groups(other, matches, (first, last), names, context)
            offset = len(snapshot.sources)
            parts.append([*groups, *(replace(g, source=g.source + offset) for g in added)])
        return replace(snapshot, sources=sources, parts=parts)

    def __str__(self) -> str:
        which = ", ".join(self.columns) if self.columns else "all columns"
        return f"add {which} of {public_url(self.url)}" + (f" on {self.on}" if self.on else "")


def _drop_missing(
    snapshot: Snapshot, matches: RowMapping, context: Context
) -> tuple[Snapshot, RowMapping]:
    def present() -> Iterator[tuple[Int64, Int64]]:
        for first in range(0, len(matches), _ROWS_PER_BLOCK):
            positions = np.arange(first, min(first + _ROWS_PER_BLOCK, len(matches)))
            rows = matches.rows(positions)
            yield positions[rows != MISSING], rows[rows != MISSING]

    kept = keep_positions(snapshot, (positions for positions, _ in present()), context)
    rows = context.workspace.write_map(
        (rows for _, rows in present()), kept.size, np.iinfo(np.int64).max
    )
    return kept, rows


def _added_groups(
    other: Snapshot,
    matches: RowMapping,
    bounds: tuple[int, int],
    names: Sequence[str],
    context: Context,
) -> list[GroupState]:
    """Return groups for the positions of one part, in the sources of `other`."""
    if len(other.parts) > 1:
        raise ConfigError(
            "a view of several data sets end to end cannot be added; convert it to one first"
        )
    first, last = bounds
    groups = []
    for group in other.parts[0]:
        columns = {old: new for old, new in group.columns.items() if new in names}
        if not columns:
            continue
        if isinstance(matches, RowRange) and (first, last) == (0, other.size):
            groups.append(GroupState(group.source, group.rows, columns))
            continue

        def blocks(group: GroupState = group) -> Iterator[Int64]:
            for begin in range(first, last, _ROWS_PER_BLOCK):
                rows = matches.rows(np.arange(begin, min(begin + _ROWS_PER_BLOCK, last)))
                found = rows != MISSING
                rows[found] = group.rows.rows(rows[found])
                yield rows

        limit = other.sources[group.source].index.size
        rows = context.workspace.write_map(blocks(), last - first, limit)
        groups.append(GroupState(group.source, rows, columns))
    return groups


@dataclass(frozen=True)
class ChangeColumns(Operation):
    """Rename columns, or leave some out."""

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        known = snapshot.columns
        check_names(f"{self}", "the view", [*self.rename, *self.drop], known)
        kept = [self.rename.get(name, name) for name in known if name not in self.drop]
        if repeated := sorted({name for name in kept if kept.count(name) > 1}):
            raise ConfigError(f"{self}: several columns would be named {repeated}")
        if not kept:
            raise ConfigError(f"{self}: no column is left")
        parts = []
        for groups in snapshot.parts:
            changed = [replace(group, columns=self._columns(group.columns)) for group in groups]
            # The first group determines the shards, even if no column of it is left.
            parts.append([g for number, g in enumerate(changed) if g.columns or not number])
        return replace(snapshot, parts=parts)

    def _columns(self, columns: Mapping[str, str]) -> dict[str, str]:
        return {
            old: self.rename.get(new, new) for old, new in columns.items() if new not in self.drop
        }

    def __str__(self) -> str:
        renamed = [f"{old}={new}" for old, new in self.rename.items()]
        return f"rename {', '.join(renamed)}" if renamed else f"drop {', '.join(self.drop)}"


@dataclass(frozen=True)
class Concat(Operation):
    """Append the samples of another data set or view."""

    url: str
    format: str | None = None

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        other = open_location(self.url, self.format, context.stream)
        if sorted(other.columns) != sorted(snapshot.columns):
            raise ConfigError(
                f"{self}: it has the columns {other.columns}, the view has {snapshot.columns}; both must "
                "have the same"
            )
        snapshot.check_types(other, str(self))
        offset = len(snapshot.sources)
        moved = [[replace(g, source=g.source + offset) for g in groups] for groups in other.parts]
        return replace(
            snapshot,
            sources=[*snapshot.sources, *other.sources],
            parts=[*snapshot.parts, *moved],
        )

    def __str__(self) -> str:
        return f"concat {public_url(self.url)}"
