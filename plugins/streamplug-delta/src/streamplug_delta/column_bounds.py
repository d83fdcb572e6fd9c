"""Bounds of the columns of the files of Delta tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from streamplug_parquet.table_columns import TableColumn
from streamplug_parquet.table_snapshot import Bounds

from streamplug_delta.log_checks import Action
from streamplug_delta.schema import parse_partition_value

_MAX_WHOLE_TEXT = 31
"""Characters of texts in statistics that are not cut off."""


def column_bounds(
    add: Action, statistics: Mapping[str, Any], columns: Mapping[str, TableColumn]
) -> Bounds:
    """Return the bounds of those columns of a file for which the log has them.

    Args:
        add: The action of the file.
        statistics: Its statistics.
        columns: Columns of the table by their names in files.
    """
    partition = add.get("partitionValues") or {}
    lowest, highest = (statistics.get(key) or {} for key in ("minValues", "maxValues"))
    nulls = statistics.get("nullCount") or {}
    bounds = {}
    for stored, column in columns.items():
        try:
            if stored in partition:
                low = high = parse_partition_value(partition[stored], column.type)
                is_missing = False
            else:
                low, high = lowest.get(stored), highest.get(stored)
                is_missing = nulls.get(stored) != 0
            values = _value(low, column.type, -np.inf), _value(high, column.type, np.inf)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            continue
        if None not in values:
            bounds[column.name] = *values, is_missing
    return bounds


def _value(value: Any, type_: pa.DataType, outside: float) -> Any:
    """Return a bound as the value that a sample has; None if there is none.

    Args:
        value: The bound as it is stored.
        type_: Type of the column.
        outside: Infinity of the side on which no values are.
    """
    of = pa.types
    if value is None:
        return None
    if of.is_integer(type_):
        return int(value)
    if of.is_floating(type_):
        return None if math.isnan(value) else _float_bound(float(value), type_, outside)
    if of.is_string(type_):
        return value if len(value) <= _MAX_WHOLE_TEXT else None
    return np.datetime64(value, "D") if of.is_date(type_) else None


def _float_bound(value: float, type_: pa.DataType, outside: float) -> float:
    """Move a bound outwards that may be the shortest text of a float32, which is not its exact value.

    Such text is also in the statistics of columns that were float32 once.
    """
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if float(single) == value or (pa.types.is_float64(type_) and float(str(single)) != value):
        return value
    return float(np.nextafter(single, np.float32(outside)))
