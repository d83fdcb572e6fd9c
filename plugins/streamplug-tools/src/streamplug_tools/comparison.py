"""Comparison of two data sets: columns, numbers of samples, and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.config import check_flags, suggest_keywords
from streamplug.errors import ConfigError
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory
from streamplug_tools.options import (
    JobProgress,
    Location,
    ProgressCallback,
    check_count,
    ignore_progress,
    single_stream,
)
from streamplug_tools.raw_values import has_own_encoding, same_encoding
from streamplug_tools.row_access import Table, cache_locally
from streamplug_tools.selection_order import SequentialOrder


@dataclass(frozen=True, slots=True)
class SampleDifference:
    """Difference of one sample.

    Attributes:
        sample: Number of the sample.
        columns: Columns whose values differ.
    """

    sample: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two data sets.

    Attributes:
        urls: URL of each.
        samples: Number of samples of each.
        only: Columns that only one has, for each.
        encodings: Pairs of different encodings by column.
        compared: Number of samples compared.
        differing: Number of samples with different values.
        first: The first of these.
    """

    urls: tuple[str, str]
    samples: tuple[int, int]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    encodings: dict[str, tuple[str, str]]
    compared: int
    differing: int
    first: tuple[SampleDifference, ...]

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        alike = self.samples[0] == self.samples[1] and not (self.differing or self.encodings)
        return alike and self.only == ((), ())


@suggest_keywords
def diff(
    one: Location | Stream,
    other: Location | Stream,
    *,
    values: bool = False,
    max_differences: int = 10,
    allow_unsafe_types: bool = False,
    on_progress: ProgressCallback = ignore_progress,
) -> Difference:
    """Compare two data sets sample by sample.

    Values of the same encoding are compared as stored, others decoded.

    Args:
        one: A path, a URL or a stream.
        other: Another.
        values: Whether to ignore different encodings of equal values.
        max_differences: Maximum number of differing samples to return; all are counted.
        allow_unsafe_types: Whether values may be decoded if decoding can run code.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        StreamplugError: If a set or a sample cannot be read.
    """
    check_flags(values=values, allow_unsafe_types=allow_unsafe_types)
    max_differences = check_count("max_differences", max_differences)
    with TemporaryDirectory() as folder:
        read = [
            cache_locally([single_stream(s)], folder / f"{n}", whole=False)
            for n, s in enumerate((one, other))
        ]
        plain = [Table(source, allow_unsafe_types=True) for source in read]  # metadata only
        both = [name for name in plain[0].columns if name in plain[1].columns]
        if not both:
            raise ConfigError(f"{plain[0].url} and {plain[1].url} have no column in common")
        stored = [name for name in both if _is_stored_alike(plain, name)]
        tables = [
            Table(source, both, stored=stored, allow_unsafe_types=allow_unsafe_types)
            for source in read
        ]
        specs = {n: (plain[0].columns[n][0].spec, plain[1].columns[n][0].spec) for n in both}
        size = min(table.size for table in tables)
        differing, first = _compare_batches(tables, both, size, max_differences, on_progress)
        a, b = plain
        return Difference(
            urls=(a.url, b.url),
            samples=(a.size, b.size),
            only=(_only(a, b), _only(b, a)),
            encodings={n: (x, y) for n, (x, y) in specs.items() if x != y and not values},
            compared=size,
            differing=differing,
            first=tuple(first),
        )


def _only(one: Table, other: Table) -> tuple[str, ...]:
    return tuple(name for name in one.columns if name not in other.columns)


def _is_stored_alike(tables: Sequence[Table], name: str) -> bool:
    """Return whether comparing stored values is enough."""
    columns = [column for table in tables for column in table.columns[name]]
    first, *others = columns
    return not any(map(has_own_encoding, columns)) and all(
        same_encoding(first.encoding, column.encoding) for column in others
    )


def _compare_batches(
    tables: Sequence[Table],
    names: Sequence[str],
    size: int,
    limit: int,
    on_progress: ProgressCallback,
) -> tuple[int, list[SampleDifference]]:
    count, first = 0, list[SampleDifference]()
    rows = min(table.rows for table in tables)
    reads = [table.read(SequentialOrder(size), 0, size, rows) for table in tables]
    for (ids, one), (_, other) in zip(*reads):
        on_progress(JobProgress("comparing", int(ids[0]), size))
        names_by_place: dict[int, list[str]] = {}
        for name in names:
            for place in _differing(one[name], other[name]):
                names_by_place.setdefault(place, []).append(name)
        count += len(names_by_place)
        first += [
            SampleDifference(int(ids[at]), tuple(names_by_place[at]))
            for at in sorted(names_by_place)
        ]
        first = first[:limit]
    return count, first


def _differing(one: Any, other: Any) -> list[int]:
    """Return the positions at which two columns differ."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape:
        if _is_compared_rounded(one, other):
            return _differing(one.tolist(), other.tolist())
        same = one == other
        if _may_have_nan(one, other):
            same |= np.isnan(one) & np.isnan(other)
        return [int(n) for n in np.flatnonzero(~same.reshape(len(one), -1).all(1))]
    if isinstance(one, list) and isinstance(other, list):
        pairs = enumerate(zip(one, other))
        return [n for n, (x, y) in pairs if x is not y and not _same(x, y)]
    return [n for n, (x, y) in enumerate(zip(one, other)) if not _same(x, y)]


def _may_have_nan(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether both arrays are of types that have NaN or NaT."""
    kinds = {one.dtype.kind, other.dtype.kind}
    return kinds <= {"f", "c"} or kinds in ({"m"}, {"M"})


def _is_compared_rounded(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether NumPy would convert integers to float64 to compare two arrays; Python does not."""
    return {one.dtype.kind, other.dtype.kind} in ({"i", "u"}, {"i", "f"}, {"u", "f"})


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        if _is_compared_rounded(one, other):
            return _same(one.tolist(), other.tolist())
        return bool(np.array_equal(one, other, equal_nan=_may_have_nan(one, other)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) or bool(one != one and other != other)  # noqa: PLR0124 - as NaN is
