"""Collation of columns and samples with torch, with errors that name the column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamplug.adapters.dtypes import has_torch_dtype
from streamplug.errors import ConfigError
from streamplug.types import ColumnValues

Collate = Callable[[list[Any]], Any]

_COLLATE_ERRORS = (TypeError, RuntimeError)
"""Exceptions that torch raises for values that it cannot collate."""


class UnequalArrays(list[Any]):
    """Arrays of one column with different shapes; a loader returns them as a list of tensors."""


def collate_columns(columns: dict[str, ColumnValues], collate: Collate) -> dict[str, Any]:
    """Collate columns as torch's `default_collate` does samples; arrays of different shapes stay a list."""
    return {
        name: values if has_torch_dtype(values) else _collate_column(name, list(values), collate)
        for name, values in columns.items()
    }


def collate_samples(samples: list[Any], collate: Collate) -> Any:
    """Collate samples with torch's `default_collate`; raise `ConfigError` with the column that fails."""
    try:
        return collate(samples)
    except _COLLATE_ERRORS:
        if not all(isinstance(sample, dict) for sample in samples):
            raise
        for name in samples[0]:
            values = [sample[name] for sample in samples if name in sample]
            try:
                collate(values)
            except _COLLATE_ERRORS as error:
                raise _collate_error(name, values, error) from error
        raise


def _collate_column(name: str, values: list[Any], collate: Collate) -> Any:
    if all(map(has_torch_dtype, values)) and len({value.shape for value in values}) > 1:
        return UnequalArrays(values)
    try:
        return collate(values)
    except _COLLATE_ERRORS as error:
        raise _collate_error(name, values, error) from error


def _collate_error(name: str, values: Sequence[Any], error: Exception) -> ConfigError:
    """Return the error for a column that torch cannot collate, with what to do."""
    first = next(
        (value for value in values if not isinstance(value, (int, float, str, bytes))), None
    )
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
    return ConfigError(
        f"column {name!r}: torch makes no batch of {why}: {error}; read other columns by columns= of the "
        "data set, or give decoders= to it, or transform=, batch_transform= or collate_fn= to the loader"
    )
