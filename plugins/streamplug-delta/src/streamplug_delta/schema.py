"""Schemas of Delta tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from streamplug_parquet.table_columns import TableColumn, with_field_id

from streamplug.errors import ConfigError
from streamplug.plugin_kit import parsing

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


def parse_columns(metadata: Mapping[str, Any], where: str) -> dict[str, TableColumn]:
    """Return the columns of a table by their names in files.

    Args:
        metadata: The action ``metaData``.
        where: Name of the table in errors.

    Raises:
        DataError: If the schema is damaged.
        ConfigError: If a column is of a type that is not supported.
    """
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    columns = {}
    with parsing(f"{where}: the schema"):
        for entry in json.loads(metadata["schemaString"])["fields"]:
            column = _field(entry, entry["name"], mode)
            [stored] = column.names or ()
            columns[stored] = column
    return columns


def _field(entry: Mapping[str, Any], where: str, mode: str) -> TableColumn:
    """Return a column of a table, or a field of a struct; `where` is the column, in errors."""
    details = entry.get("metadata") or {}
    stored = entry["name"] if mode == "none" else details[_PHYSICAL_NAME]
    column = _column(
        entry["type"], entry["name"], where, mode, nullable=entry.get("nullable", True)
    )
    if mode == "id":
        numbered = with_field_id(column.field, details["delta.columnMapping.id"])
        column = replace(column, field=numbered)
    return replace(column, names=[stored])


def _column(type_: Any, name: str, where: str, mode: str, *, nullable: bool) -> TableColumn:
    """Return a column, a field, or items, keys or values, without its name in files."""
    children: list[TableColumn] = []
    if isinstance(type_, str):
        arrow = _primitive(type_, where)
    elif (kind := type_["type"]) == "array":
        has_none = type_.get("containsNull", True)
        children = [_column(type_["elementType"], "element", where, mode, nullable=has_none)]
        arrow = pa.list_(children[0].field)
    elif kind == "map":
        has_none = type_.get("valueContainsNull", True)
        children = [
            _column(type_["keyType"], "key", where, mode, nullable=False),
            _column(type_["valueType"], "value", where, mode, nullable=has_none),
        ]
        arrow = pa.map_(children[0].field.type, children[1].field.type)
    elif kind == "struct":
        children = [_field(entry, where, mode) for entry in type_["fields"]]
        arrow = pa.struct([child.field for child in children])
    else:
        raise ConfigError(f"column {where!r}: the type {kind!r:.60} is not supported")
    return TableColumn(pa.field(name, arrow), nullable, None, children=children)


def _primitive(type_: str, where: str) -> pa.DataType:
    if match := _DECIMAL.fullmatch(type_):
        return pa.decimal128(int(match[1]), int(match[2]))
    if type_ not in _PRIMITIVE:
        raise ConfigError(f"column {where!r}: the type {type_} is not supported")
    return _PRIMITIVE[type_]


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
