"""Puts the columns of several data sets together, by a key that their samples have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError
from streamplug.stream import Stream
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Int64
from streamplug_tools.column_mapping import Mapped
from streamplug_tools.copy import Input, columns_for, copy
from streamplug_tools.expressions import Expression
from streamplug_tools.options import ALL, Columns, Output, Place, Report, Written, silent, streams
from streamplug_tools.row_access import Table, near
from streamplug_tools.selection_order import Lists
from streamplug_tools.sort_keys import Keyed, evaluated, numbered, sorted_keys

_AT_ONCE = 1 << 16
_NONE = -1


def join(
    sources: Sequence[Place | Stream],
    output: Output,
    by: str,
    *,
    columns: Columns = ALL,
    report: Report = silent,
) -> Written:
    """Write the samples of the first set with the columns of all that have the same key.

    They come in the order of the first. Samples are left out whose key is None, or one of the others lacks.
    Columns that ``by`` names are those of the first. Keys are sorted in files; samples are fetched as for
    `shuffle`.

    Args:
        sources: Paths, URLs or streams: two or more.
        output: Where to, and how.
        by: The key: a Python expression such as the name of a column; see `Expression`.
        columns: Which columns, and how they are stored.
        report: Told of what is done.

    Raises:
        StreamplugError: As for `convert`, or if two sets have a column of one name, or a key comes twice in
            another set than the first.
    """
    expression = Expression(by)
    if len(sources) < 2:
        raise ConfigError("give two data sets or more to be joined")
    with TemporaryDirectory() as folder:
        read = [
            near(streams(source), folder / f"{n}", whole=True) for n, source in enumerate(sources)
        ]
        tables = [Table(each, allow_unsafe_types=True) for each in read]  # nothing is read of them
        output = output.like(tables[0])
        taken = _columns(tables, output, columns, expression)
        sorts = [
            sorted_keys(
                numbered(
                    evaluated(
                        each,
                        expression,
                        allow_unsafe_types=columns.allow_unsafe_types,
                        report=report,
                        what=f"reading keys of {table.url}",
                    )
                ),
                _made(folder / f"keys-{n}"),
            )
            for n, (each, table) in enumerate(zip(read, tables))
        ]
        found = _matched(sorts, [table.size for table in tables], [t.url for t in tables], folder)
        lists = Lists(folder, map(str, range(len(tables))))
        for begin in range(0, tables[0].size, _AT_ONCE):
            ids = np.arange(begin, min(begin + _AT_ONCE, tables[0].size))
            others = [np.asarray(match[ids]) for match in found]
            both = np.logical_and.reduce([other != _NONE for other in others])
            for n, some in enumerate([ids, *others]):
                lists.add(str(n), some[both])
        return copy(
            [
                Input(each, lists.orders[str(n)], mine)
                for n, (each, mine) in enumerate(zip(read, taken))
            ],
            tables,
            output,
            what=["join", by],
            report=report,
            allow_unsafe_types=columns.allow_unsafe_types,
        )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _columns(
    tables: Sequence[Table], output: Output, columns: Columns, expression: Expression
) -> list[list[Mapped]]:
    """Return what is taken of each set.

    Raises:
        ConfigError: If a column does not exist, or two sets have it.
    """
    key = set(expression.for_columns(tables[0].columns).columns(tables[0].columns))
    names = [
        [name for name in table.columns if n == 0 or name not in key]
        for n, table in enumerate(tables)
    ]
    seen: dict[str, int] = {}
    for n, table in enumerate(tables):
        for name in names[n]:
            if name in seen and _wanted(name, columns):
                raise ConfigError(
                    f"{tables[seen[name]].url} and {table.url} both have a column {name!r}; drop it, or "
                    "convert one of them with another name for it"
                )
            seen[name] = n
    everything = {name for some in names for name in some}
    _check(columns, everything)
    taken = []
    for table, some in zip(tables, names):
        mine = [name for name in some if _wanted(name, columns)]
        if not mine:
            raise ConfigError(f"no column is taken of {table.url}; leave the set out")
        renamed = {old: new for old, new in columns.rename.items() if old in mine}
        new = {renamed.get(name, name) for name in mine}
        part = Columns(
            encodings={n: e for n, e in columns.encodings.items() if n in new},
            rename=renamed,
            select=mine,
        )
        taken.append(columns_for(table, output, part))
    return taken


def _wanted(name: str, columns: Columns) -> bool:
    return (columns.select is None or name in columns.select) and name not in columns.drop


def _check(columns: Columns, names: set[str]) -> None:
    new = {columns.rename.get(name, name) for name in names}
    for what, some, known in (
        ("select", columns.select or (), names),
        ("drop", columns.drop, names),
        ("rename", columns.rename, names),
        ("columns", columns.encodings, new),
    ):
        check_names(f"{what}={list(some)}", "the joined set", some, known)


def _matched(
    sorts: Sequence[Iterator[Keyed]], sizes: Sequence[int], urls: Sequence[str], folder: Path
) -> list[Int64]:
    """Return for each set but the first which of its samples goes with each of the first, -1 for none.

    These arrays are mapped from files, so that they may be larger than memory.

    Raises:
        ConfigError: If a key comes twice in one of these.
    """
    found: list[Int64] = []
    for n in range(1, len(sorts)):
        match: Int64 = np.memmap(folder / f"match-{n}", np.int64, "w+", shape=(max(sizes[0], 1),))
        for begin in range(0, len(match), _AT_ONCE):
            match[begin : begin + _AT_ONCE] = _NONE
        found.append(match)
    heads = [_Head(keys_, url) for keys_, url in zip(sorts[1:], urls[1:])]
    try:
        for key, number in sorts[0]:
            if key is None:  # of a key that is not known nobody can say that it is the same
                break  # they come last
            for head, match in zip(heads, found):
                match[number] = head.at(key)
        for head in heads:
            head.finish()
    except TypeError as error:
        raise ConfigError(f"the keys of the sets cannot be compared: {error}") from error
    return found


class _Head:
    """Sorted keys, looked at one after the other."""

    def __init__(self, sorted_: Iterator[Keyed], url: str) -> None:
        self._rest = _unique(sorted_, url)
        self._now = next(self._rest, None)

    def at(self, key: object) -> int:
        """Return the sample that has a key, -1 if none has; keys are asked for in their order."""
        while self._now is not None and self._now[0] < key:
            self._now = next(self._rest, None)
        return self._now[1] if self._now is not None and self._now[0] == key else _NONE

    def finish(self) -> None:
        """Look at those that are left, too."""
        deque(self._rest, maxlen=0)


def _unique(sorted_: Iterator[Keyed], url: str) -> Iterator[Keyed]:
    """Yield sorted keys.

    Raises:
        ConfigError: If one comes twice.
    """
    before: Keyed | None = None
    for now in sorted_:
        if now[0] is None:
            return
        if before is not None and before[0] == now[0]:
            raise ConfigError(
                f"{url}: samples {before[1]} and {now[1]} both have the key {now[0]!r:.80}; only those of "
                "the first set may"
            )
        before = now
        yield now
