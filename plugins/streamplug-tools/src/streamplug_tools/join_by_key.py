"""Join of data sets by a key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.config import check_names, suggest_keywords
from streamplug.errors import ConfigError, StreamplugError
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory
from streamplug.types import Int64
from streamplug.write import Writer
from streamplug_tools.bad_samples import BadSamples
from streamplug_tools.column_mapping import ColumnMapping, check_distinct, check_renamed
from streamplug_tools.copy import CopyInput, copy, map_table_columns
from streamplug_tools.expressions import Expression
from streamplug_tools.options import (
    ALL_COLUMNS,
    Columns,
    Location,
    Output,
    ProgressCallback,
    WriteResult,
    check_count,
    ignore_progress,
    job_streams,
)
from streamplug_tools.row_access import Table, cache_locally
from streamplug_tools.selection_order import NO_SAMPLE, OrderFiles
from streamplug_tools.sort_keys import SortedKeys, evaluate_expression, sort_by_key

_IDS_PER_BLOCK = 1 << 16
_KINDS = ("inner", "left")


@suggest_keywords
def join(
    sources: Sequence[Location | Stream],
    output: Output,
    by: str,
    *,
    how: str = "inner",
    skip_bad: int = 0,
    columns: Columns = ALL_COLUMNS,
    on_progress: ProgressCallback = ignore_progress,
) -> WriteResult:
    """Write the samples of the first data set with the columns of all that have the same key.

    The order is that of the first. Columns in ``by`` are taken from the first. Keys are sorted in files;
    samples are downloaded as for `shuffle`.

    Args:
        sources: Paths, URLs or streams: two or more.
        output: Location and options of the new data set.
        by: The key: a Python expression such as the name of a column; see `Expression`.
        how: What to do with samples of the first whose key is None or missing in another: ``"inner"`` leaves
            them out, ``"left"`` gives them None in the columns of that other one.
        skip_bad: Number of samples that may be left out because they cannot be read, computed or stored. The
            result lists them.
        columns: Columns to take, and their encodings; with ``"left"``, they must store None where a key is
            missing.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: As for `convert`, or if two data sets have a column of the same name, or a key is
            repeated in another than the first, or the encoding of a column stores no None that is needed.
    """
    if how not in _KINDS:
        raise ConfigError(f"how={how!r:.60}: expected {' or '.join(map(repr, _KINDS))}")
    bad = BadSamples(check_count("skip_bad", skip_bad))
    expression = Expression(by)
    if isinstance(sources, (str, PathLike, Stream)) or len(sources) < 2:
        raise ConfigError("give two data sets or more to be joined")
    with TemporaryDirectory() as folder:
        read = [
            cache_locally(job_streams(source), folder / f"{n}", whole=True)
            for n, source in enumerate(sources)
        ]
        tables = [Table(source, allow_unsafe_types=True) for source in read]  # metadata only
        output = output.like(tables[0])
        mappings = _columns(tables, output, columns, expression)
        keys = [
            evaluate_expression(
                source,
                expression,
                allow_unsafe_types=columns.allow_unsafe_types,
                on_progress=on_progress,
                what=f"reading keys of {table.url}",
                content=table.content,
                bad=bad,
            )
            for source, table in zip(read, tables)
        ]
        shape = (max(tables[0].size, 1),)
        is_good: NDArray[np.bool_] = np.memmap(folder / "good", np.bool_, "w+", shape=shape)
        keys[0] = _mark_samples(keys[0], is_good)
        sorts = [
            sort_by_key(of_table, _make_folder(folder / f"keys-{n}"))
            for n, of_table in enumerate(keys)
        ]
        matches = match_sorted_keys(
            sorts, [table.size for table in tables], [t.url for t in tables], folder
        )
        lists = OrderFiles(folder, map(str, range(len(tables))))
        gaps: list[int | None] = [None] * len(tables)
        for begin in range(0, tables[0].size, _IDS_PER_BLOCK):
            ids = np.arange(begin, min(begin + _IDS_PER_BLOCK, tables[0].size))
            others = [np.asarray(match[ids]) for match in matches]
            kept = np.asarray(is_good[ids])
            if how == "inner":
                kept = np.logical_and.reduce([other != NO_SAMPLE for other in others])
            for n, some in enumerate([ids, *others]):
                lists.add(str(n), some[kept])
                if gaps[n] is None and (some[kept] == NO_SAMPLE).any():
                    gaps[n] = int(ids[some == NO_SAMPLE][0])
        inputs = []
        for n, (source, mine, gap) in enumerate(zip(read, mappings, gaps)):
            content = tables[n].content
            if gap is not None:
                where = f"sample {gap} of {tables[0].url} has no partner in {tables[n].url}"
                _check_none(mine, str(output.format), where)
            # None is encoded, so the others are as well.
            taken = mine if gap is None else [replace(column, stored=False) for column in mine]
            order = lists.orders[str(n)]
            inputs.append(
                CopyInput(source, order, taken, content, folder, has_gaps=gap is not None)
            )
        return copy(
            inputs,
            tables,
            output,
            what=["join", by, *([] if how == "inner" else [how])],
            on_progress=on_progress,
            allow_unsafe_types=columns.allow_unsafe_types,
            bad=bad,
        )


def _mark_samples(
    values: Iterator[tuple[Int64, list[Any]]], marks: NDArray[np.bool_]
) -> Iterator[tuple[Int64, list[Any]]]:
    """Yield values, and mark their samples, which are those whose key could be read."""
    for ids, keys in values:
        marks[ids] = True
        yield ids, keys


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _columns(
    tables: Sequence[Table], output: Output, columns: Columns, expression: Expression
) -> list[list[ColumnMapping]]:
    """Return the columns to take from each data set."""
    key = set(expression.for_columns(tables[0].columns).columns(tables[0].columns))
    names = [
        [name for name in table.columns if n == 0 or name not in key]
        for n, table in enumerate(tables)
    ]
    seen: dict[str, int] = {}
    for n, table in enumerate(tables):
        for name in names[n]:
            if name in seen and columns.keeps(name):
                raise ConfigError(
                    f"{tables[seen[name]].url} and {table.url} both have a column {name!r}; drop it, or "
                    "convert one of them with another name for it"
                )
            seen[name] = n
    everything = {name for some in names for name in some}
    _check(columns, everything)
    mappings = []
    for table, some in zip(tables, names):
        mine = [name for name in some if columns.keeps(name)]
        if not mine:
            raise ConfigError(f"no column is taken of {table.url}; leave the set out")
        renamed = {old: new for old, new in columns.rename.items() if old in mine}
        new = {renamed.get(name, name) for name in mine}
        part = Columns(
            encodings={n: e for n, e in columns.encodings.items() if n in new},
            rename=renamed,
            select=mine,
        )
        mappings.append(map_table_columns(table, output, part))
    check_distinct([column.name for of_table in mappings for column in of_table])
    return mappings


def _check(columns: Columns, names: set[str]) -> None:
    new = {columns.rename.get(name, name) for name in names}
    for what, some, known in (
        ("select", columns.select or (), names),
        ("drop", columns.drop, names),
        ("rename", columns.rename, names),
        ("columns", columns.encodings, new),
    ):
        check_names(f"{what}={list(some)}", "the joined set", some, known)
    check_renamed(columns.rename, [name for name in names if columns.keeps(name)])


def _check_none(columns: Sequence[ColumnMapping], target: str, reason: str) -> None:
    """Raise a ConfigError if the encoding of a column does not store None, which is needed for a reason."""
    for column in columns:
        if not _stores_none(column.spec, target):
            others = (f"{column.spec}?", "json")
            spec = next((other for other in others if _stores_none(other, target)), None)
            way = f"pass --columns {column.name}:{spec}, " if spec else ""
            raise ConfigError(
                f"{reason}, and column {column.name!r} ({column.spec}) of format {target} cannot store None: "
                f"{way}leave the column out with --drop {column.name}, or such samples with --how inner"
            )


def _stores_none(spec: str, target: str) -> bool:
    try:
        with (
            TemporaryDirectory() as folder,
            Writer(columns={"value": spec}, out=folder / "set", format=target) as writer,
        ):
            writer.write({"value": None})
    except StreamplugError:
        return False
    return True


def match_sorted_keys(
    sorts: Sequence[Iterator[SortedKeys]], sizes: Sequence[int], urls: Sequence[str], folder: Path
) -> list[Int64]:
    """Return, for each data set but the first, the matching sample of each of the first, or -1.

    The arrays are memory maps, so they may be larger than memory.
    """
    matches: list[Int64] = []
    for n in range(1, len(sorts)):
        match: Int64 = np.memmap(folder / f"match-{n}", np.int64, "w+", shape=(max(sizes[0], 1),))
        for begin in range(0, len(match), _IDS_PER_BLOCK):
            match[begin : begin + _IDS_PER_BLOCK] = NO_SAMPLE
        matches.append(match)
    cursors = [_KeyCursor(keys_, url) for keys_, url in zip(sorts[1:], urls[1:])]
    try:
        for block in sorts[0]:
            if block.keys[0] is None:  # None matches nothing, and sorts last
                break
            for cursor, match in zip(cursors, matches):
                match[block.numbers] = cursor.find(block)
        for cursor in cursors:
            cursor.finish()
    except TypeError as error:
        raise ConfigError(f"the keys of the sets cannot be compared: {error}") from error
    return matches


class _KeyCursor:
    """Place in sorted keys, which moves on with the keys that are looked for."""

    def __init__(self, blocks: Iterator[SortedKeys], url: str) -> None:
        self._rest = _check_unique(blocks, url)
        self._block = next(self._rest, None)

    def find(self, wanted: SortedKeys) -> Int64:
        """Return the sample that has each key, or -1; over all calls the keys must be ascending."""
        found = np.full(len(wanted.numbers), NO_SAMPLE)
        begin = 0
        while self._block is not None:
            begin += _find(wanted, begin, self._block, found)
            if begin == len(found):  # the next keys may be in this block, too
                break
            self._block = next(self._rest, None)
        return found

    def finish(self) -> None:
        """Check the remaining keys, too."""
        deque(self._rest, maxlen=0)


def _find(wanted: SortedKeys, begin: int, block: SortedKeys, found: Int64) -> int:
    """Write the samples of a block that have keys into `found`; return the number of keys up to its last.

    Args:
        wanted: The keys.
        begin: The first of them to look for.
        block: The block, in which the keys before are not.
        found: Takes the samples: int64, shape ``[len(wanted)]``.
    """
    keys, others = wanted.keys, block.keys
    if not (isinstance(keys, np.ndarray) and isinstance(others, np.ndarray)):
        return _find_listed(wanted, begin, block, found)
    if keys.dtype != others.dtype:  # integers that no float64 has would be rounded
        return _find_listed(wanted, begin, block, found)
    keys = keys[begin:]
    keys = keys[: np.searchsorted(keys, others[-1], side="right")]
    places = np.searchsorted(others, keys)
    end = begin + len(keys)
    found[begin:end] = np.where(others[places] == keys, block.numbers[places], NO_SAMPLE)
    return len(keys)


def _find_listed(wanted: SortedKeys, begin: int, block: SortedKeys, found: Int64) -> int:
    """Do what `_find` does, for keys of any type."""
    listed, others = wanted.listed, block.listed
    end = bisect_right(listed, others[-1], begin)
    place = 0
    for at in range(begin, end):
        place = bisect_left(others, listed[at], place)
        if others[place] == listed[at]:
            found[at] = block.numbers[place]
    return end - begin


def _check_unique(blocks: Iterator[SortedKeys], url: str) -> Iterator[SortedKeys]:
    """Yield sorted keys that are not None; refuse repeated ones."""
    before: SortedKeys | None = None
    for block in blocks:
        if block.keys[0] is None:
            return
        if before is not None and before.keys[-1] == block.keys[0]:
            raise _repeated(url, before.numbers[-1], block.numbers[0], block.keys[:1])
        at = _first_repeated(block.keys)
        if at is not None:
            raise _repeated(url, block.numbers[at], block.numbers[at + 1], block.keys[at : at + 1])
        before = block
        yield block


def _first_repeated(keys: list[Any] | NDArray[Any]) -> int | None:
    """Return the position of the first key that equals the next one."""
    if isinstance(keys, np.ndarray):
        places = np.flatnonzero(keys[1:] == keys[:-1])
        return int(places[0]) if len(places) else None
    return next((at for at, (one, other) in enumerate(pairwise(keys)) if one == other), None)


def _repeated(url: str, one: Any, other: Any, key: list[Any] | NDArray[Any]) -> ConfigError:
    [shown] = key if isinstance(key, list) else key.tolist()
    return ConfigError(
        f"{url}: samples {one} and {other} both have the key {shown!r:.80}, and only those of the first set "
        "may: write the first of each key with streamplug dedup"
    )
