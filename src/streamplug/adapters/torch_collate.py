"""Collation of columns and samples with torch, with errors that name the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import default_collate

from streamplug.errors import ConfigError
from streamplug.types import ColumnValues

_MAX_ITEM_BYTES = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""Item size in bytes of torch's largest dtype, by NumPy kind."""

_CONTAINERS = (dict, list, tuple)  # that torch collates item by item
_COLLATE_ERRORS = (TypeError, RuntimeError, ValueError, KeyError)
"""Exceptions that torch raises for values that it cannot collate."""


def has_torch_dtype(values: Any) -> bool:
    """Return whether `values` is an array of a dtype that torch supports."""
    return (
        isinstance(values, np.ndarray)
        and values.dtype.kind in _MAX_ITEM_BYTES
        and values.dtype.itemsize <= _MAX_ITEM_BYTES[values.dtype.kind]
    )


class UnequalArrays(list[Any]):
    """Arrays of one column with different shapes; a loader returns them as a list of tensors."""


def collate_columns(columns: dict[str, ColumnValues]) -> dict[str, Any]:
    """Collate columns as torch's `default_collate` does samples; arrays of different shapes stay a list."""
    return {
        name: values if has_torch_dtype(values) else _collate_column(name, list(values))
        for name, values in columns.items()
    }


def collate_samples(samples: list[Any]) -> Any:
    """Collate samples with torch's `default_collate`.

    Raises:
        ConfigError: If torch cannot collate a column, or samples, or dicts of a column, have different keys.
    """
    are_dicts = all(isinstance(sample, dict) for sample in samples)
    _check_keys("", samples)
    try:
        return default_collate(samples)
    except _COLLATE_ERRORS:
        if not are_dicts:
            raise
        return {
            name: _collate_values(name, [sample[name] for sample in samples]) for name in samples[0]
        }


def _collate_column(name: str, values: list[Any]) -> Any:
    if all(map(has_torch_dtype, values)) and len({value.shape for value in values}) > 1:
        return UnequalArrays(values)
    _check_keys(name, values)
    return _collate_values(name, values)


def _collate_values(name: str, values: list[Any]) -> Any:
    # torch returns text as it is, but raises if the first value is None.
    if all(value is None or isinstance(value, (str, bytes)) for value in values):
        return values
    try:
        return default_collate(values)
    except _COLLATE_ERRORS as error:
        raise _collate_error(name, values, error) from error


def _check_keys(place: str, values: list[Any]) -> None:
    """Check that all dicts of a place have the same keys, as torch drops those that the first one lacks."""
    first = values[0] if values else None
    if not isinstance(first, _CONTAINERS) or not all(isinstance(v, type(first)) for v in values):
        return
    if isinstance(first, dict):
        for value in values:
            if value.keys() != first.keys():
                raise _keys_error(place, list(value), list(first))
        keys: Sequence[Any] = list(first)
    else:
        keys = range(min(map(len, values)))  # torch refuses different lengths
    for key in keys:
        if isinstance(first[key], _CONTAINERS):
            _check_keys(f"{place}.{key}" if place else str(key), [value[key] for value in values])


def _keys_error(place: str, some: list[Any], others: list[Any]) -> ConfigError:
    if not place:
        return ConfigError(
            f"a sample of a batch has the columns {some}, others {others}; choose those that all have with "
            "columns= of the data set, or make all samples alike by transform= of the loader, or give it "
            "collate_fn="
        )
    return ConfigError(
        f"column {place!r}: a dict of a batch has the keys {some}, others {others}; give the loader "
        "transform= or batch_transform= that makes them alike, or collate_fn=, or read other columns by "
        "columns= of the data set"
    )


def _collate_error(name: str, values: Sequence[Any], error: Exception) -> ConfigError:
    """Return the error for a column that torch cannot collate, with what to do."""
    others = (value for value in values if not isinstance(value, (int, float, str, bytes)))
    first = next(others, values[0])
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    kind = type(first)
    if any(base.__module__.partition(".")[0] == "PIL" for base in kind.__mro__):
        return ConfigError(
            f"column {name!r}: torch cannot batch Pillow images ({kind.__name__}); have "
            f"them decoded to arrays: decoders={{{name!r}: ImageArrays(size=(224, 224))}} of "
            "streamplug_image, as an argument of the data set; or give the loader transform=, "
            "batch_transform= or collate_fn="
        )
    sizes = {value.shape for value in values if isinstance(value, np.ndarray)}
    why = "arrays of different shapes" if len(sizes) > 1 else kind.__name__
    detail = f"some have no key {error}" if isinstance(error, KeyError) else error
    return ConfigError(
        f"column {name!r}: torch makes no batch of {why}: {detail}; read other columns by columns= of the "
        "data set, or give decoders= to it, or transform=, batch_transform= or collate_fn= to the loader"
    )
