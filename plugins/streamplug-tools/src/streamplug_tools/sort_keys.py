"""Evaluation of an expression for all samples, and external sorting by it."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from sys import getsizeof
from time import perf_counter
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, StreamplugError
from streamplug.read import make_samples
from streamplug.stream import Stream
from streamplug.transfer import map_disk_errors
from streamplug.types import Int64
from streamplug_tools.bad_samples import BAD_SAMPLE_ERRORS, BadSamples
from streamplug_tools.expressions import Expression
from streamplug_tools.options import JobProgress, ProgressCallback
from streamplug_tools.row_access import ROWS_PER_STEP, Batch, Content, Table, batch_rows_of
from streamplug_tools.selection_order import SequentialOrder

NumberedKey: TypeAlias = "tuple[Any, int]"


class SortedKeys(NamedTuple):
    """Some keys in order, and the samples that have them.

    Attributes:
        keys: The keys: an array of int64 or float64 if all in memory are such numbers, else a list.
        numbers: Numbers of the samples: int64, shape ``[n]``.
    """

    keys: list[Any] | NDArray[Any]
    numbers: Int64

    @property
    def listed(self) -> list[Any]:
        """The keys as Python objects."""
        return _listed(self.keys)


_MAX_RUN_BYTES = 128 << 20
_KEY_OVERHEAD_BYTES = 48
"""Memory per key besides the key: its list entry, the number of its sample, and its place in the order."""
_SHORT_STEP_SECONDS = 0.02
"""Evaluations that take less are followed by those of twice as many rows; progress is shown between them."""
_KEYS_PER_BLOCK = 1 << 16
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
    content: Content = (),
    bad: BadSamples | None = None,
) -> Iterator[tuple[Int64, list[Any]]]:
    """Yield sample numbers and the values of an expression; only columns that it uses are read.

    Args:
        streams: Source data sets.
        expression: The expression.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.
        on_progress: Called with the progress, from time to time.
        what: Name of the task in it.
        content: `Table.content` that the streams must have; empty for any.
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
        table.check_content(content)
        for begin in range(0, table.size, table.rows):
            numbers = range(begin, min(begin + table.rows, table.size))
            on_progress(JobProgress(what, begin, table.size))
            ids = np.arange(numbers.start, numbers.stop, dtype=np.int64)
            yield _values(table, expression, ids, {}, bad)
        return
    table = Table(streams, names, allow_unsafe_types=allow_unsafe_types)
    table.check_content(content)
    step = ROWS_PER_STEP
    for ids, batch in _read_good(table, bad):
        begin = 0
        while begin < len(ids):
            end = begin + step
            on_progress(JobProgress(what, int(ids[begin]), table.size))
            begun = perf_counter()
            rows = batch_rows_of(batch, begin, end)
            values = _values(table, expression, ids[begin:end], rows, bad)
            if perf_counter() - begun < _SHORT_STEP_SECONDS:
                step *= 2
            yield values
            begin = end


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
    numbers, columns = ids.tolist(), batch_columns(batch, numpy_times=True)
    if (results := expression.of_columns(numbers, columns)) is not None:
        return ids, results
    rows = make_samples(list(columns), [*columns.values()]) if batch else [{} for _ in numbers]
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


def batch_rows(batch: Batch, *, numpy_times: bool = False) -> list[dict[str, Any]]:
    """Return the samples of a batch, with values as `batch_columns` has them."""
    columns = batch_columns(batch, numpy_times=numpy_times)
    return make_samples(list(columns), [*columns.values()])


def batch_columns(batch: Batch, *, numpy_times: bool = False) -> dict[str, Sequence[Any]]:
    """Return the columns of a batch, with Python numbers.

    Times are Python's, or integers if those have too few digits. With `numpy_times` they are NumPy's.
    """
    kept_kinds = "mM" if numpy_times else ""
    columns: dict[str, Sequence[Any]] = {}
    for name, values in batch.items():
        if isinstance(values, np.ndarray):
            is_kept = values.ndim != 1 or values.dtype.kind in kept_kinds
            columns[name] = list(values) if is_kept else values.tolist()
        elif any(issubclass(kind, np.generic) for kind in set(map(type, values))):
            # Beside None, or of several dtypes.
            columns[name] = [_as_python(value, kept_kinds) for value in values]
        else:
            columns[name] = values
    return columns


def _as_python(value: Any, kept_kinds: str) -> Any:
    is_scalar = isinstance(value, np.generic) and value.dtype.kind not in kept_kinds
    return value.item() if is_scalar else value


def sort_by_key(
    values: Iterable[tuple[Int64, list[Any]]], folder: Path, *, reverse: bool = False
) -> Iterator[SortedKeys]:
    """Sort keys and their sample numbers externally; the sort is stable, and None is last.

    Args:
        values: Sample numbers and their keys, as `evaluate_expression` yields them.
        folder: Directory for sorted runs.
        reverse: Whether to sort in descending order.

    Yields:
        Keys, none of which is None, and then those that are None.

    Raises:
        ConfigError: If two keys cannot be compared.
    """
    runs = _SortedRuns(folder, reverse=reverse)
    run = _Run()
    missing = [np.empty(0, np.int64)]
    try:
        for numbers, keys in values:
            if type(None) in set(map(type, keys)):
                has_key = np.array([key is not None for key in keys], bool)
                missing.append(numbers[~has_key])
                run.add(numbers[has_key], [key for key in keys if key is not None])
            else:
                run.add(numbers, keys)
            if run.bytes > _MAX_RUN_BYTES:
                runs.add(run.sorted(reverse=reverse))
                run = _Run()
        yield from runs.merged(run.sorted(reverse=reverse))
    except (TypeError, ValueError, ArithmeticError) as error:  # the last of a signaling NaN
        if isinstance(error, StreamplugError):
            raise
        raise ConfigError(
            f"the keys cannot be sorted: {error}; give all samples keys of one type, such as str(KEY), and "
            "where a part of a key may be None, (KEY is None, KEY or 0) for it"
        ) from error
    without_key = np.concatenate(missing)
    for begin in range(0, len(without_key), _KEYS_PER_BLOCK):
        some = without_key[begin : begin + _KEYS_PER_BLOCK]
        yield SortedKeys([None] * len(some), some)


def each_key(blocks: Iterable[SortedKeys]) -> Iterator[NumberedKey]:
    """Yield sorted keys one by one."""
    for block in blocks:
        yield from zip(block.listed, block.numbers.tolist())


class _Run:
    """Keys in memory, and the numbers of their samples.

    Attributes:
        bytes: Approximate size in memory.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._keys: list[list[Any] | NDArray[Any]] = []
        self._numbers = [np.empty(0, np.int64)]

    def add(self, numbers: Int64, keys: list[Any]) -> None:
        types = set(map(type, keys))
        array = _array_of(keys, types)
        if not types <= _ORDERED_TYPES and (array is None or np.isnan(array).any()):
            for number, key in zip(numbers.tolist(), keys):
                if _has_nan(key):
                    raise ConfigError(
                        f"sample {number} has the key {key!s:.80}, which has no place in an order: give such "
                        "samples another one, such as None (None if KEY != KEY else KEY)"
                    )
        self._numbers.append(numbers)
        if array is not None:
            self._keys.append(array)
            self.bytes += array.nbytes + numbers.nbytes
            return
        self._keys.append(keys)
        of_items = sum(map(_sizeof, keys)) if types & {tuple, list} else sum(map(getsizeof, keys))
        self.bytes += of_items + _KEY_OVERHEAD_BYTES * len(keys)

    def sorted(self, *, reverse: bool) -> Iterator[SortedKeys]:
        """Return the keys in order."""
        keys, numbers = self._joined(), np.concatenate(self._numbers)
        if isinstance(keys, np.ndarray):
            order = _stable_order(keys, reverse=reverse)
        else:
            order = np.array(
                sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse), np.int64
            )
        for begin in range(0, len(order), _KEYS_PER_BLOCK):
            which = order[begin : begin + _KEYS_PER_BLOCK]
            is_array = isinstance(keys, np.ndarray)
            some = keys[which] if is_array else [keys[at] for at in which.tolist()]
            yield SortedKeys(some, numbers[which])

    def _joined(self) -> list[Any] | NDArray[Any]:
        """Return all keys: an array if all are numbers of one type."""
        arrays = [keys for keys in self._keys if isinstance(keys, np.ndarray)]
        if len(arrays) == len(self._keys) > 0 and len({keys.dtype for keys in arrays}) == 1:
            return np.concatenate(arrays)
        return [key for keys in self._keys for key in _listed(keys)]


def _listed(keys: list[Any] | NDArray[Any]) -> list[Any]:
    return keys.tolist() if isinstance(keys, np.ndarray) else keys


def _array_of(keys: list[Any], types: set[type]) -> NDArray[Any] | None:
    """Return keys that are numbers of one type as an array of 64 bits; None for others."""
    if types not in ({int}, {float}):
        return None
    try:
        return np.array(keys, np.int64 if types == {int} else np.float64)
    except OverflowError:
        return None


def _stable_order(keys: NDArray[Any], *, reverse: bool) -> Int64:
    if not reverse:
        return keys.argsort(kind="stable")
    return len(keys) - 1 - keys[::-1].argsort(kind="stable")[::-1]


_ORDERED_TYPES = {bool, bytes, int, str}
"""Types without NaN."""
_KEY = itemgetter(0)


def _has_nan(key: Any) -> bool:
    """Return whether a key is NaN, or a tuple or list that contains it, also nested."""
    if isinstance(key, (tuple, list)):
        return any(map(_has_nan, key))
    return bool(key != key)  # noqa: PLR0124 - as NaN is


def _sizeof(key: Any) -> int:
    """Return the bytes of a key in memory, with the items of a tuple or list."""
    items = sum(map(_sizeof, key)) if isinstance(key, (tuple, list)) else 0
    return getsizeof(key) + items


class _SortedRuns:
    """Sorted runs in files, of which a bounded number is merged at once."""

    def __init__(self, folder: Path, *, reverse: bool) -> None:
        self._folder, self._reverse = folder, reverse
        self._count = 0
        self._paths: list[Path] = []

    def add(self, keys: Iterable[SortedKeys]) -> None:
        """Add a sorted run."""
        self._paths.append(self._written(each_key(keys)))
        if len(self._paths) == _MAX_MERGED_RUNS:  # keep the order of runs: the sort is stable
            self._paths = [self._written(self._merge(map(_read, self._paths)))]

    def merged(self, last: Iterable[SortedKeys]) -> Iterator[SortedKeys]:
        """Merge all runs and a last one."""
        if not self._paths:
            yield from last
            return
        yield from _in_blocks(self._merge([*map(_read, self._paths), each_key(last)]))

    def _merge(self, runs: Iterable[Iterable[NumberedKey]]) -> Iterator[NumberedKey]:
        return heapq.merge(*runs, key=_KEY, reverse=self._reverse)

    def _written(self, keys: Iterable[NumberedKey]) -> Path:
        path = self._folder / f"keys-{self._count}"
        self._count += 1
        rest = iter(keys)
        with map_disk_errors(path), path.open("wb") as file:
            while some := list(islice(rest, _KEYS_PER_RECORD)):
                _write_records(some, file)
        return path


def _in_blocks(pairs: Iterable[NumberedKey]) -> Iterator[SortedKeys]:
    """Yield keys in blocks whose size is bounded."""
    keys, numbers, size = list[Any](), list[int](), 0
    for key, number in pairs:
        keys.append(key)
        numbers.append(number)
        size += _sizeof(key)
        if len(keys) == _KEYS_PER_RECORD or size > _MAX_RECORD_BYTES:
            yield SortedKeys(keys, np.array(numbers, np.int64))
            keys, numbers, size = [], [], 0
    if keys:
        yield SortedKeys(keys, np.array(numbers, np.int64))


def _write_records(keys: list[NumberedKey], file: BinaryIO) -> None:
    """Write keys as a record, or as several if they are large."""
    half = len(keys) // 2
    if half and sum(_sizeof(key) for key, _ in keys) > _MAX_RECORD_BYTES:
        _write_records(keys[:half], file)
        _write_records(keys[half:], file)
    else:
        pickle.dump(keys, file)


def _read(path: Path) -> Iterator[NumberedKey]:
    with path.open("rb") as file:
        yield from chain.from_iterable(_loaded(file))
    path.unlink()  # read once


def _loaded(file: BinaryIO) -> Iterator[list[NumberedKey]]:
    while True:
        try:
            yield pickle.load(file)  # noqa: S301 - written above
        except EOFError:
            return
