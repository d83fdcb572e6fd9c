"""Bounds of the columns of Iceberg data files."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from streamplug_parquet.table_snapshot import Bounds

_ORDERED = (BooleanType, DecimalType, DoubleType, FloatType, IntegerType, LongType, StringType)
_TIMES: dict[type, Any] = {DateType: "D", TimestampType: "us", TimestamptzType: "us"}


def column_bounds(file: DataFile, schema: Schema) -> Bounds:
    """Return the bounds of those columns of a file for which the manifest has them."""
    lower, upper = dict(file.lower_bounds or {}), dict(file.upper_bounds or {})
    nulls = dict(file.null_value_counts or {})
    bounds = {}
    for field in schema.fields:
        number, type_ = field.field_id, field.field_type
        if number not in lower or number not in upper or not isinstance(type_, PrimitiveType):
            continue
        try:
            lowest, highest = (_value(type_, values[number]) for values in (lower, upper))
        except (ValueError, struct.error):  # the column had another type when the file was written
            continue
        if lowest is not None and not any(map(_is_nan, (lowest, highest))):
            bounds[field.name] = lowest, highest, nulls.get(number) != 0
    return bounds


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _value(type_: PrimitiveType, data: bytes) -> Any:
    """Return a bound as the value that a sample has; None if its type has no order here."""
    unit = _TIMES.get(type(type_))
    if unit is None and not isinstance(type_, _ORDERED):
        return None
    value: Any = from_bytes(type_, data)
    return value if unit is None else np.datetime64(value, unit)
