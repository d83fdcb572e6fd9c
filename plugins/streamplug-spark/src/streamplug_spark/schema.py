"""Inference of column encodings from DataFrame types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamplug.errors import ConfigError

_PLAIN: Mapping[str, str] = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "str",
    "binary": "bytes",
    "boolean": "json",
}
"""Encodings by type name of Spark SQL."""


def encodings_of(schema: Any) -> dict[str, str]:
    """Return the encoding of each column of a DataFrame's schema.

    Args:
        schema: A `pyspark.sql.types.StructType`.

    Raises:
        ConfigError: If a type has no encoding.
    """
    encodings = {field.name: _encoding(field.dataType) for field in schema.fields}
    missing = [
        f"{field.name} ({field.dataType.simpleString()})"
        for field in schema.fields
        if encodings[field.name] is None
    ]
    if missing:
        raise ConfigError(
            f"no encoding is meant for {', '.join(missing)}: cast them, leave them out of the DataFrame, or "
            "give columns="
        )
    return {name: encoding for name, encoding in encodings.items() if encoding is not None}


def _encoding(kind: Any) -> str | None:
    name = kind.simpleString()
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith("decimal"):
        return "str_decimal"
    if name.startswith(("varchar", "char")):
        return "str"
    if name.startswith("array<"):
        element = _PLAIN.get(kind.elementType.simpleString(), "")
        if element.startswith(("int", "float")):
            return f"ndarray:{element}"
    return "json" if _is_json(kind) else None


def _is_json(kind: Any) -> bool:
    """Return whether values of a type survive a JSON round trip, apart from the keys of maps."""
    if hasattr(kind, "keyType"):  # JSON keys are strings
        key = kind.keyType.simpleString()
        return key in _PLAIN and key not in ("binary", "float") and _is_json(kind.valueType)
    if hasattr(kind, "elementType"):
        return _is_json(kind.elementType)
    if hasattr(kind, "fields"):
        return all(_is_json(field.dataType) for field in kind.fields)
    return kind.simpleString() in _PLAIN and kind.simpleString() not in ("binary", "float")
