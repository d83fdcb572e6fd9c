"""Evaluation of an expression for all samples, and external sorting by it."""

from __future__ import annotations

import heapq
import pickle
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from streamplug.errors import ConfigError, StreamplugError
from streamplug.read import make_samples
from streamplug.stream import Stream
from streamplug.transfer import map_disk_errors
from streamplug.types import Int64
from streamplug_tools.bad_samples import BAD_SAMPLE_ERRORS, BadSamples
from streamplug_tools.expressions import Expression
from streamplug_tools.options import JobProgress, ProgressCallback
from streamplug_tools.row_access import ROWS_PER_STEP, Batch, Table, batch_rows_of
from streamplug_tools.selection_order import SequentialOrder

NumberedKey: TypeAlias = "tuple[Any, int]"

_MAX_RUN_BYTES = 64 << 20
_KEY_OVERHEAD_BYTES = 120
"""Memory per key besides the key: a tuple, a number, and their list entries."""
_KEYS_PER_RECORD = 1024
_MAX_RECORD_BYTES = 1 << 20
"""Size of the keys from which on a record has fewer: one record of each merged run is in memory."""
_MAX_MERGED_RUNS = 64


def evaluate_expression(
    streams: Sequence[Stream],
    expression: Expression,
    *,
    allow_unsafe_types: bool,
    on_progress: ProgressCallback,
    what: str,
    bad: BadSamples | None = None,
) -> Iterator[tuple[Int64, list[Any]]]:
    """Yield sample numbers and the values of an expression; only columns that it uses are read.

    Args:
        streams: Source data sets.
        expression: The expression.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.
        on_progress: Called with the progress, from time to time.
        what: Name of the task in it.
        bad: Takes the samples that cannot be read, or for which the expression fails, and are left out; None
            for none.

    Raises:
        StreamplugError: If samples cannot be read, or the expression fails.
    """
    bad = bad or BadSamples(0)
    table = Table(streams, allow_unsafe_types=True, needed=expression.uses)
    expression = expression.for_columns(table.columns)
    names = expression.columns(table.columns)
    if not names:
        for begin in range(0, table.size, table.rows):
            numbers = range(begin, min(begin + table.rows, table.size))
            on_progress(JobProgress(what, begin, table.size))
            ids = np.arange(numbers.start, numbers.stop, dtype=np.int64)
            yield _values(table, expression, ids, {}, bad)
        return
    table = Table(streams, names, allow_unsafe_types=allow_unsafe_types)
    for ids, batch in _read_good(table, bad):
        for begin in range(0, len(ids), ROWS_PER_STEP):
            end = begin + ROWS_PER_STEP
            on_progress(JobProgress(what, int(ids[begin]), table.size))
            rows = batch_rows_of(batch, begin, end)
            yield _values(table, expression, ids[begin:end], rows, bad)


def _read_good(table: Table, bad: BadSamples) -> Iterator[tuple[Int64, Batch]]:
    """Yield the batches of a table; those with bad samples are read sample by sample."""
    begin = 0
    while begin < table.size:
        try:
            for ids, batch in table.read(SequentialOrder(table.size), begin, table.size):
                yield ids, batch
                begin += len(ids)
            return
        except BAD_SAMPLE_ERRORS:
            stop = min(begin + table.rows, table.size)
        for number in range(begin, stop):
            ids = np.array([number])
            try:
                batch = table.take(ids)
            except BAD_SAMPLE_ERRORS as error:
                bad.add(*table.place(number), error)
            else:
                yield ids, batch
        begin = stop


def _values(
    table: Table, expression: Expression, ids: Int64, batch: Batch, bad: BadSamples
) -> tuple[Int64, list[Any]]:
    """Return the numbers of samples and the values of an expression, without bad samples."""
    numbers = ids.tolist()
    rows = batch_rows(batch, numpy_times=True) if batch else [{} for _ in numbers]
    try:
        return ids, list(map(expression, numbers, rows))
    except BAD_SAMPLE_ERRORS:
        good, values = [], []
    for number, row in zip(numbers, rows):
        try:
            values.append(expression(number, row))
        except BAD_SAMPLE_ERRORS as error:
            bad.add(*table.place(number), error)
        else:
            good.append(number)
    return np.array(good, np.int64), values


def number_values(values: Iterable[tuple[Int64, list[Any]]]) -> Iterator[NumberedKey]:
    """Yield each value of `evaluate_expression` with its sample number."""
    for ids, keys in values:
        yield from zip(keys, ids.tolist())


def batch_rows(batch: Batch, *, numpy_times: bool = False) -> list[dict[str, Any]]:
    """Return the samples of a batch, with Python numbers.

    Times are Python's, or integers if those have too few digits. With `numpy_times` they are NumPy's.
    """
    kept_kinds = "mM" if numpy_times else ""
    columns: list[Any] = []
    for values in batch.values():
        if isinstance(values, np.ndarray):
            is_kept = values.ndim != 1 or values.dtype.kind in kept_kinds
            columns.append(list(values) if is_kept else values.tolist())
        elif any(issubclass(kind, np.generic) for kind in set(map(type, values))):
            # Beside None, or of several dtypes.
            columns.append([_as_python(value, kept_kinds) for value in values])
        else:
            columns.append(values)
    return make_samples(list(batch), columns)


def _as_python(value: Any, kept_kinds: str) -> Any:
    is_scalar = isinstance(value, np.generic) and value.dtype.kind not in kept_kinds
    return value.item() if is_scalar else value


def sort_by_key(
    keys: Iterable[NumberedKey], folder: Path, *, reverse: bool = False
) -> Iterator[NumberedKey]:
    """Sort keys and their sample numbers externally; the sort is stable, and None is last.

    Args:
        keys: Keys in the order of the samples.
        folder: Directory for sorted runs.
        reverse: Whether to sort in descending order.

    Raises:
        ConfigError: If two keys cannot be compared.
    """
    runs = _SortedRuns(folder, reverse=reverse)
    run: list[NumberedKey] = []
    size = 0
    missing = array("q")
    try:
        for key, number in keys:
            if key is None:
                missing.append(number)
                continue
            if _has_nan(key):
                raise ConfigError(
                    f"sample {number} has the key {key!s:.80}, which has no place in an order"
                )
            run.append((key, number))
            size += _sizeof(key) + _KEY_OVERHEAD_BYTES
            if size > _MAX_RUN_BYTES:
                runs.add(sorted(run, key=_KEY, reverse=reverse))
                run, size = [], 0
        last = sorted(run, key=_KEY, reverse=reverse)
        yield from runs.merged(last)
    except (TypeError, ValueError, ArithmeticError) as error:  # the last of a signaling NaN
        if isinstance(error, StreamplugError):
            raise
        raise ConfigError(
            f"the keys cannot be sorted: {error}; give all samples keys of one type, such as str(KEY), and "
            "where a part of a key may be None, (KEY is None, KEY or 0) for it"
        ) from error
    yield from ((None, number) for number in missing)


_KEY = itemgetter(0)


def _has_nan(key: Any) -> bool:
    """Return whether a key is NaN, or a tuple or list that contains it, also nested."""
    if isinstance(key, (tuple, list)):
        return any(map(_has_nan, key))
    return bool(key != key)  # noqa: PLR0124 - as NaN is


def _sizeof(key: Any) -> int:
    """Return the bytes of a key in memory, with the items of a tuple or list."""
    items = sum(map(_sizeof, key)) if isinstance(key, (tuple, list)) else 0
    return sys.getsizeof(key) + items


class _SortedRuns:
    """Sorted runs in files, of which a bounded number is merged at once."""

    def __init__(self, folder: Path, *, reverse: bool) -> None:
        self._folder, self._reverse = folder, reverse
        self._count = 0
        self._paths: list[Path] = []

    def add(self, keys: Iterable[NumberedKey]) -> None:
        """Add a sorted run."""
        self._paths.append(self._written(keys))
        if len(self._paths) == _MAX_MERGED_RUNS:  # keep the order of runs: the sort is stable
            self._paths = [self._written(self._merge(map(_read, self._paths)))]

    def merged(self, last: Iterable[NumberedKey]) -> Iterator[NumberedKey]:
        """Merge all runs and a last one."""
        return self._merge([*map(_read, self._paths), last])

    def _merge(self, runs: Iterable[Iterable[NumberedKey]]) -> Iterator[NumberedKey]:
        return heapq.merge(*runs, key=_KEY, reverse=self._reverse)

    def _written(self, keys: Iterable[NumberedKey]) -> Path:
        path = self._folder / f"keys-{self._count}"
        self._count += 1
        some: list[NumberedKey] = []
        size = 0
        with map_disk_errors(path), path.open("wb") as file:
            for key in keys:
                some.append(key)
                size += _sizeof(key[0])
                if len(some) == _KEYS_PER_RECORD or size > _MAX_RECORD_BYTES:
                    pickle.dump(some, file)
                    some, size = [], 0
            pickle.dump(some, file)
        return path


def _read(path: Path) -> Iterator[NumberedKey]:
    with path.open("rb") as file:
        yield from _loaded(file)
    path.unlink()  # read once


def _loaded(file: BinaryIO) -> Iterator[NumberedKey]:
    while True:
        try:
            some = pickle.load(file)  # noqa: S301 - written above
        except EOFError:
            return
        yield from some
