"""Inference of the encodings of columns from their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import WritableFormat
from streamplug_tools.input_adapters import to_plain_values

_NUMBERS = (int, float, np.integer, np.floating)
_MAX_EXACT_INT = 1 << 53  # of float64

_ENCODING_BY_TYPES: Sequence[tuple[tuple[type, ...], str]] = (
    ((int, np.integer), "int"),
    (_NUMBERS, "float64"),
    ((str,), "str"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((np.ndarray,), "ndarray"),
    ((bool, int, float, str, list, dict, type(None)), "json"),
)
"""Encodings by the types of values that they accept, in order of preference."""


def infer_columns(columns: Mapping[str, Any], format_: WritableFormat) -> dict[str, str]:
    """Infer an encoding for each column from its values."""
    return {name: _infer_encoding(name, values, format_) for name, values in columns.items()}


def _infer_encoding(name: str, values: Any, format_: WritableFormat) -> str:
    spec = format_.infer_encoding(values)
    if spec is None and len(values):
        spec = _infer_from_types(to_plain_values(values))
        if spec is not None and format_.encodings and spec not in format_.encodings:
            spec = "float" if spec == "float64" and "float" in format_.encodings else None
    if spec is None:
        kinds = sorted({type(value).__name__ for value in list(values[:100])})
        raise ConfigError(
            f"column {name!r}: no encoding that keeps its values follows from them "
            f"({', '.join(kinds) or 'none'}); name it in columns="
        )
    return spec


def _infer_from_types(values: Any) -> str | None:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        shape = ",".join(map(str, values.shape[1:]))
        return f"ndarray:{values.dtype.name}:{shape}" if shape else values.dtype.name
    kinds = {type(value) for value in values}
    if all(issubclass(kind, _NUMBERS) for kind in kinds) and (
        bool in kinds or _is_inexact(kinds, values)
    ):
        return "json"  # int or float64 would store True as 1, or another integer
    for classes, spec in _ENCODING_BY_TYPES:
        if all(issubclass(kind, classes) for kind in kinds):
            return spec
    return None


def _is_inexact(kinds: set[type], values: Any) -> bool:
    """Return whether float64 would change integers among floating-point numbers."""
    if all(issubclass(kind, (int, np.integer)) for kind in kinds):
        return False
    integers = (value for value in values if isinstance(value, (int, np.integer)))
    return any(abs(int(value)) > _MAX_EXACT_INT for value in integers)
