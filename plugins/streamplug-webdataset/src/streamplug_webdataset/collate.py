"""Conversion of samples to batches, and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamplug.errors import DataError


def collated(samples: Sequence[Any]) -> Any:
    """Return a batch: a dict or tuple with the values of each field.

    Numbers become an array, arrays and tensors of the same shape are stacked, other values are a list.

    Raises:
        DataError: If the samples have different fields or types, or arrays of different shapes.
    """
    first = samples[0]
    if not isinstance(first, (dict, list, tuple)):
        return _together(list(samples), "sample")
    kind = dict if isinstance(first, dict) else (list, tuple)
    if not all(issubclass(type_, kind) for type_ in set(map(type, samples))):
        raise _mixed_types("sample", samples)
    if isinstance(first, dict):
        if any(sample.keys() != first.keys() for sample in samples):
            names = sorted(set().union(*samples) - set.intersection(*map(set, samples)))
            raise DataError(
                f"not all samples of a batch have {names}: rename, select or map them before batched()"
            )
        return {name: _together([s[name] for s in samples], name) for name in first}
    if any(len(sample) != len(first) for sample in samples):
        raise DataError("the samples of a batch have different numbers of values")
    return tuple(_together(list(values), at) for at, values in enumerate(zip(*samples)))


def _together(values: list[Any], field: str | int) -> Any:
    first = values[0]
    if isinstance(first, (int, float, np.generic)):
        return _as_array(values, field)
    torch = sys.modules.get("torch")
    tensors = torch is not None and isinstance(first, torch.Tensor)
    if not tensors and not isinstance(first, np.ndarray):
        return values
    kind = torch.Tensor if tensors and torch is not None else np.ndarray
    if not all(issubclass(type_, kind) for type_ in set(map(type, values))):
        raise _mixed_types(field, values)
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) > 1:
        raise DataError(
            f"{field!r}: a batch has shapes {sorted(shapes)}: make them equal with map(), or use listed()"
        )
    return torch.stack(values) if tensors and torch is not None else np.stack(values)


def _as_array(values: list[Any], field: str | int) -> Any:
    """Return an array of numbers; a list if there are texts among them, which NumPy would make of all."""
    try:
        array = np.array(values)
    except ValueError:
        raise _mixed_types(field, values) from None
    if array.dtype.kind in "US" and not isinstance(values[0], (str, bytes)):
        return values
    if array.dtype.kind == "f" and all(isinstance(v, (int, np.integer)) for v in values):
        # NumPy rounds integers of which some need int64 and others uint64.
        return np.array(values, np.uint64 if min(values) >= 0 else object)
    return array


def _mixed_types(field: str | int, values: Sequence[Any]) -> DataError:
    names = sorted({type(value).__name__ for value in values})
    return DataError(
        f"{field!r}: a batch has values of the types {', '.join(names)}: make them alike with map(), or use "
        "listed()"
    )


def apart(batch: Any) -> list[Any]:
    """Return the samples of a batch.

    Raises:
        DataError: If it is not a dict or tuple of values of equal length.
    """
    if isinstance(batch, dict):
        count = _length_of(batch)
        return [{name: values[i] for name, values in batch.items()} for i in range(count)]
    if isinstance(batch, (list, tuple)):
        _length_of(dict(enumerate(batch)))
        return list(zip(*batch))
    raise DataError(f"unbatched() takes dicts or tuples of values, got {type(batch).__name__}")


def _length_of(fields: Mapping[Any, Any]) -> int:
    single = [name for name, values in fields.items() if not hasattr(values, "__len__")]
    if single:
        raise DataError(f"unbatched() takes fields of several values each, but {single} have one")
    lengths = {name: len(values) for name, values in fields.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the fields of a batch differ in length: {lengths}")
    return next(iter(lengths.values()), 0)


def listed(batch: Any) -> list[Any]:
    """Return a list of samples unchanged.

    Raises:
        DataError: If it is not a list.
    """
    if not isinstance(batch, list):
        raise DataError(f"unlisted() takes lists, got {type(batch).__name__}")
    return batch
