"""Schemas of Delta tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from streamplug_parquet.table_columns import TableColumn, with_field_id

from streamplug.errors import ConfigError
from streamplug.plugin_kit.codec_errors import parsing

_DECIMAL = re.compile(r"decimal\(([0-9]+), *([0-9]+)\)")
_PRIMITIVE = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def parse_columns(
    metadata: Mapping[str, Any], null_counts: Mapping[str, int | None], where: str
) -> dict[str, TableColumn]:
    """Return the columns of a table by their names in files.

    Args:
        metadata: The action ``metaData``.
        null_counts: Number of missing values by name in files; None if it is not known.
        where: Name of the table in errors.

    Raises:
        DataError: If the schema is damaged.
        ConfigError: If a column is of a type that is not supported.
    """
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    columns = {}
    with parsing(f"{where}: the schema"):
        for entry in json.loads(metadata["schemaString"])["fields"]:
            details = entry.get("metadata") or {}
            stored = entry["name"] if mode == "none" else details[_PHYSICAL_NAME]
            field = pa.field(entry["name"], _type(entry["type"], entry["name"], mode))
            if mode == "id":
                field = with_field_id(field, details["delta.columnMapping.id"])
            nullable = null_counts.get(stored) != 0
            columns[stored] = TableColumn(field, nullable, [stored])
    return columns


def _type(type_: Any, name: str, mode: str) -> pa.DataType:
    if isinstance(type_, str):
        if match := _DECIMAL.fullmatch(type_):
            return pa.decimal128(int(match[1]), int(match[2]))
        if type_ not in _PRIMITIVE:
            raise ConfigError(f"column {name!r}: the type {type_} is not supported")
        return _PRIMITIVE[type_]
    kind = type_["type"]
    if kind == "array":
        return pa.list_(_type(type_["elementType"], name, mode))
    if kind == "map":
        key, value = (_type(type_[part], name, mode) for part in ("keyType", "valueType"))
        return pa.map_(key, value)
    if kind != "struct":
        raise ConfigError(f"column {name!r}: the type {kind!r:.60} is not supported")
    fields = []
    for entry in type_["fields"]:
        stored = (entry.get("metadata") or {}).get(_PHYSICAL_NAME, entry["name"])
        if mode != "none" and stored != entry["name"]:
            raise ConfigError(
                f"column {name!r}: its field {entry['name']!r} has another name in files, which is not "
                "supported"
            )
        fields.append((entry["name"], _type(entry["type"], name, mode)))
    return pa.struct(fields)


def parse_partition_value(text: str | None, type_: pa.DataType) -> Any:
    """Return the value of a partition column from its text in the log.

    Raises:
        ValueError: If it is not of the type.
        pyarrow.ArrowException: If it is not of the type, or columns of the type have no such values.
    """
    if text is None or text == "":
        return None
    if pa.types.is_string(type_):
        return pa.scalar(text).as_py()  # refuses lone surrogates
    if pa.types.is_binary(type_):
        return text.encode()
    if pa.types.is_timestamp(type_):
        plain = text.removesuffix("Z").replace("T", " ")
        naive = pa.scalar(plain).cast(pa.timestamp("us"))
        return naive.cast(type_).as_py()
    return pa.scalar(text).cast(type_).as_py()
