"""Shards that an expression is true for no sample of, by statistics of their columns."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from streamplug_tools.expressions import SAMPLE_NAMES, Expression

from streamplug.errors import ConfigError, DataError
from streamplug.index import Index
from streamplug_views.snapshot import Snapshot

_Truth = frozenset[bool]
_TRUE, _FALSE, _UNKNOWN = frozenset([True]), frozenset([False]), frozenset([True, False])
_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

ColumnBounds = tuple[Any, Any, bool]
"""The lowest and the highest value of a column, and whether values are missing."""


class ShardStatistics(Protocol):
    """Statistics of the columns of shards, as an index may have."""

    def bounds(self, shard: int) -> Mapping[str, ColumnBounds]:
        """Return the bounds of those columns of a shard for which they are known."""


def kept_ranges(
    snapshot: Snapshot, expression: Expression, names: Collection[str]
) -> list[tuple[int, int]]:
    """Return the positions that an expression must be evaluated for, as ranges ``(start, stop)``.

    `names` are the columns that it uses.
    """
    condition = Condition(expression, names)
    kept: list[tuple[int, int]] = []
    for first, groups in zip(snapshot.bounds, snapshot.parts):
        main = groups[0]
        index: Index = snapshot.sources[main.source].index
        statistics: ShardStatistics | None = index.statistics
        # Statistics are of stored values.
        decoded = {name for schema in index.schemas for name in schema.decoders}
        starts = (snapshot.starts_of(groups) + first).tolist()
        if statistics is None:
            starts = [starts[0], starts[-1]]
        for shard, (start, stop) in enumerate(pairwise(starts)):
            if statistics is not None:
                known = statistics.bounds(shard)
                bounds = {
                    new: known[old]
                    for old, new in main.columns.items()
                    if old in known and old not in decoded and new in names
                }
                if not condition.may_be_true(bounds):
                    continue
            if kept and kept[-1][1] == start:
                kept[-1] = kept[-1][0], stop
            elif start < stop:
                kept.append((start, stop))
    return kept


def split_ranges(ranges: Sequence[tuple[int, int]], count: int) -> list[list[tuple[int, int]]]:
    """Split ranges into a number of lists with about as many positions each.

    >>> split_ranges([(0, 10), (20, 30)], 4)
    [[(0, 5)], [(5, 10)], [(20, 25)], [(25, 30)]]
    """
    size = sum(last - first for first, last in ranges)
    split: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    done = number = 0
    for first, last in ranges:
        start = first
        while start < last:
            while size * (number + 1) // count <= done:
                number += 1
            stop = min(last, start + size * (number + 1) // count - done)
            split[number].append((start, stop))
            done, start = done + stop - start, stop
    return split


class Condition:
    """An expression that is evaluated with bounds in place of values."""

    def __init__(self, expression: Expression, names: Collection[str]) -> None:
        """Parse an expression that uses columns of these names, and evaluate its constants once."""
        self._names = names
        self._tree = expression.parse().body
        self._constants: dict[ast.expr, Any] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Compare):
                for operand in (node.left, *node.comparators):
                    # A set is no expression by itself.
                    items = ast.Tuple(operand.elts) if isinstance(operand, ast.Set) else operand
                    with suppress(
                        ConfigError, DataError
                    ):  # evaluation for a sample raises the latter
                        part = Expression(ast.unparse(items))
                        if part.is_constant and not any(map(part.uses, names)):
                            self._constants[operand] = part(0, {})

    def may_be_true(self, bounds: Mapping[str, ColumnBounds]) -> bool:
        """Return False only if no sample within the bounds makes the expression true."""
        return True in self._truth(self._tree, bounds)

    def _truth(self, node: ast.expr, bounds: Mapping[str, ColumnBounds]) -> _Truth:
        """Return the values that an expression may have, as a truth value."""
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(value, bounds) for value in node.values]
            decisive = _FALSE if isinstance(node.op, ast.And) else _TRUE
            if decisive in parts:
                return decisive
            return parts[0] if all(part == parts[0] for part in parts) else _UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return frozenset(not value for value in self._truth(node.operand, bounds))
        if isinstance(node, ast.Compare):
            operands = pairwise([node.left, *node.comparators])
            parts = [
                self._compare(left, type(comparison), right, bounds)
                for (left, right), comparison in zip(operands, node.ops)
            ]
            return _FALSE if _FALSE in parts else parts[0] if len(parts) == 1 else _UNKNOWN
        return _UNKNOWN

    def _compare(
        self,
        left: ast.expr,
        kind: type[ast.cmpop],
        right: ast.expr,
        bounds: Mapping[str, ColumnBounds],
    ) -> _Truth:
        column, constant = self._column_of(left), right
        if column is None and kind in _MIRRORED:
            column, constant, kind = self._column_of(right), left, _MIRRORED[kind]
        if column is None or column not in bounds or constant not in self._constants:
            return _UNKNOWN
        try:
            return _compare_with(kind, self._constants[constant], *bounds[column])
        except (TypeError, ValueError):  # evaluation names the sample
            return _UNKNOWN

    def _column_of(self, node: ast.expr) -> str | None:
        """Return the column that a node is, ``name`` or ``sample["name"]``; None if it is none."""
        if isinstance(node, ast.Name):
            return node.id
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in SAMPLE_NAMES
            and node.value.id not in self._names  # else it is a value of that column
            and isinstance(node.slice, ast.Constant)
        ):
            return str(node.slice.value)
        return None


def _compare_with(
    kind: type[ast.cmpop], value: Any, lowest: Any, highest: Any, has_missing: bool
) -> _Truth:
    # `in` of text searches in it, and that of other objects may mean anything.
    if kind is ast.In and not isinstance(value, (list, tuple, set, frozenset)):
        return _UNKNOWN
    if kind in (ast.Eq, ast.In):
        values = [value] if kind is ast.Eq else list(value)
        if None in values:
            return _UNKNOWN
        is_inside = any(lowest <= each <= highest for each in values)
        return _UNKNOWN if is_inside else _FALSE
    if (
        has_missing or kind not in _COMPARE
    ):  # an order with None is an error, which evaluation finds
        return _UNKNOWN
    compare = _COMPARE[kind]
    low, high = bool(compare(lowest, value)), bool(compare(highest, value))
    if not low and not high:
        return _FALSE
    # Numbers that are not a number are outside of all bounds.
    is_float = isinstance(lowest, (float, np.floating))
    return _TRUE if low and high and not is_float else _UNKNOWN
