"""Adapters from tables, data frames, other data sets and samples to batches of columns.

The kind of an input is recognized by its methods, so that none of the libraries is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import Any

import numpy as np
from streamplug_files import maps_as_dicts, to_python

from streamplug.config import suggest_keywords, whole_number
from streamplug.errors import ConfigError

Batch = dict[str, Any]
"""An array or a list of values for each column."""


@suggest_keywords
def iterate_batches(data: Any, size: int | None = None, *, arrow: bool = False) -> Iterator[Batch]:
    """Yield the samples of `data` in batches of columns.

    Args:
        data: An Arrow table or record batch; a pandas or Polars data frame; a Hugging Face data set; a dict
            of columns; a sequence or iterable of samples, such as a torch data set. Samples are dicts, named
            tuples, or tuples, whose columns are named ``"0"``, ``"1"`` and so on.
        size: Maximum number of samples per batch; None for 1,024, or 16,384 for an Arrow table with `arrow`.
        arrow: Whether to keep Arrow arrays instead of converting them to NumPy arrays and lists, for writers
            of formats that take them, such as Parquet.

    Raises:
        ConfigError: If `data` is anything else, its samples have different columns, or two columns have one
            name.
    """
    if size is None:
        table = arrow and hasattr(data, "schema") and hasattr(data, "slice")
        size = 1 << 14 if table else 1 << 10
    size = whole_number("size", size, 1)
    if arrow and hasattr(data, "features") and hasattr(data, "with_format"):
        data = data.with_format("arrow")
    for part in _parts(data, size):
        _check_distinct([*part])
        yield {
            str(name): values if arrow and _is_arrow(values) else to_plain_values(values)
            for name, values in part.items()
        }


def to_plain_values(values: Any) -> Any:
    """Return a column as a NumPy array if all values are numbers, else as a list.

    Missing values become None, and Arrow maps become dicts.
    """
    if isinstance(values, (np.ndarray, list)):
        return values
    if _is_arrow(values):
        return _of_arrow(values)
    if hasattr(values, "to_list") and hasattr(values, "null_count"):  # a series of Polars
        is_numeric = values.dtype.is_numeric() and not values.null_count()
        return values.to_numpy() if is_numeric else values.to_list()
    if hasattr(values, "notna"):  # a series of pandas
        if isinstance(values.dtype, np.dtype) and values.dtype != object:
            return values.to_numpy()
        items = values.astype(object).where(values.notna(), None).tolist()
        arrow_type = getattr(values.dtype, "pyarrow_dtype", None)
        convert = None if arrow_type is None else maps_as_dicts(arrow_type)
        return items if convert is None else [convert(item) for item in items]
    if hasattr(values, "detach"):  # a tensor of torch
        found = _of_tensor(values)
        return found if isinstance(found, np.ndarray) else list(values)
    return list(values)


def _of_arrow(values: Any) -> Any:
    kinds_of_numbers = ("int", "uint", "float", "double", "halffloat", "bool")
    is_numeric = str(values.type).startswith(kinds_of_numbers) and not values.null_count
    return np.asarray(values) if is_numeric else to_python(values)


def _is_arrow(values: Any) -> bool:
    return hasattr(values, "to_pylist") and hasattr(values, "null_count")


def _parts(data: Any, size: int) -> Iterator[Mapping[str, Any]]:
    """Yield the data in parts of at most `size` samples, with columns of its own types."""
    if isinstance(data, Mapping):
        return _of_columns(data, size)
    if hasattr(data, "to_batches") and hasattr(data, "schema"):  # a table of Arrow
        return _of_record_batches(data.to_batches(max_chunksize=size), size)
    if hasattr(data, "num_rows") and hasattr(data, "schema") and hasattr(data, "slice"):
        return _of_record_batches([data], size)
    if hasattr(data, "iter_slices"):  # a data frame of Polars
        return ({n: part[n] for n in part.columns} for part in data.iter_slices(size))
    if hasattr(data, "collect_schema"):
        raise ConfigError("a lazy frame has no rows yet: call collect() first")
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # a data frame of pandas
        return _of_pandas(data, size)
    if hasattr(data, "features") and callable(getattr(data, "iter", None)):  # of Hugging Face
        return _of_tables(data.iter(batch_size=size), size)
    return _of_samples(_iterate(data), size)


def _check_distinct(names: Sequence[Any]) -> None:
    if len({str(name) for name in names}) < len(names):
        raise ConfigError(f"the names of the columns are not distinct: {names}")


def _iterate(data: Any) -> Iterator[Any]:
    if hasattr(data, "as_source"):  # a data set of ours, whose len is that of an epoch of a rank
        data = data.as_source()
    if not isinstance(data, (str, bytes, bytearray)):
        if (
            hasattr(data, "__getitem__")
            and hasattr(data, "__len__")
            and not _is_iterable_only(data)
        ):
            # By number, as torch data sets may raise any error past the end.
            return (data[number] for number in range(len(data)))
        if isinstance(data, Iterable):
            return iter(data)
    raise ConfigError(f"{type(data).__name__} is neither a table nor a sequence of samples")


def _is_iterable_only(data: Any) -> bool:
    """Return whether this is an iterable data set of torch, whose inherited `__getitem__` only raises."""
    dataset = getattr(sys.modules.get("torch.utils.data"), "Dataset", None)
    return dataset is not None and getattr(type(data), "__getitem__", None) is dataset.__getitem__


def _of_columns(data: Mapping[str, Any], size: int) -> Iterator[Mapping[str, Any]]:
    for name, values in data.items():
        is_single = isinstance(values, (str, bytes, bytearray, Mapping, AbstractSet))
        if hasattr(values, "features") or not hasattr(values, "__len__") or is_single:
            raise ConfigError(
                f"{name!r}: expected a column, got {type(values).__name__}; of several splits, choose one"
            )
    counts = {name: len(values) for name, values in data.items()}
    if len(set(counts.values())) > 1:
        raise ConfigError(f"the columns differ in length: {counts}")
    for start in range(0, max(counts.values(), default=0), size):
        # A Series of pandas 2 whose labels are floats would be sliced by them.
        yield {
            name: getattr(values, "iloc", values)[start : start + size]
            for name, values in data.items()
        }


def _of_record_batches(batches: Iterable[Any], size: int) -> Iterator[Mapping[str, Any]]:
    for batch in batches:
        _check_distinct(batch.schema.names)
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            yield dict(zip(part.schema.names, part.columns))


def _of_tables(tables: Iterable[Any], size: int) -> Iterator[Mapping[str, Any]]:
    for table in tables:
        yield from _parts(table, size)


def _of_pandas(data: Any, size: int) -> Iterator[Mapping[str, Any]]:
    _check_distinct([*data.columns])
    for start in range(0, len(data), size):
        part = data.iloc[start : start + size]
        yield {name: part[name] for name in part.columns}


def _of_samples(samples: Iterator[Any], size: int) -> Iterator[Mapping[str, Any]]:
    head = list(islice(samples, 1))
    if not head:
        return
    [first], samples = head, chain(head, samples)
    if not isinstance(first, (Mapping, tuple, list)):  # an iterable of tables
        yield from _of_tables(samples, size)
        return
    names = list(_named(first))
    while rows := list(islice(samples, size)):
        if set(map(type, rows)) != {dict}:
            rows = [_named(row) for row in rows]
        if set(map(len, rows)) != {len(names)}:
            raise _differing_columns(rows, names)
        try:
            columns = {name: [row[name] for row in rows] for name in names}
        except KeyError:
            raise _differing_columns(rows, names) from None
        yield {name: _convert_tensors(values) for name, values in columns.items()}


def _differing_columns(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> ConfigError:
    row = next(row for row in rows if row.keys() != set(names))
    return ConfigError(f"a sample has the columns {sorted(row)}, others {sorted(names)}")


def _named(sample: Any) -> Mapping[str, Any]:
    if isinstance(sample, Mapping):
        return sample
    if hasattr(sample, "_asdict"):
        named: Mapping[str, Any] = sample._asdict()
        return named
    if isinstance(sample, (tuple, list)):
        return {str(number): value for number, value in enumerate(sample)}
    raise ConfigError(f"a sample is a dict or a tuple, got {type(sample).__name__}")


def _convert_tensors(values: list[Any]) -> list[Any]:
    """Return the values of samples, with tensors of torch as arrays, and those of no dimension as scalars."""
    if not any(hasattr(kind, "detach") for kind in set(map(type, values))):
        return values
    return [_of_tensor(value) if hasattr(value, "detach") else value for value in values]


def _of_tensor(tensor: Any) -> Any:
    """Return a tensor of torch as an array or scalar, or unchanged if it is of a type that NumPy lacks."""
    try:
        return tensor.detach().cpu().numpy()[()]
    except TypeError:
        return tensor
