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
                value = _value(parse_partition_value(partition[stored], column.type), column.type)
                values, is_missing = (value, value), False
            else:
                values = (
                    _value(lowest.get(stored), column.type),
                    _value(highest.get(stored), column.type),
                )
                is_missing = nulls.get(stored) != 0
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            continue
        if None not in values:
            bounds[column.name] = *values, is_missing
    return bounds


def _value(value: Any, type_: pa.DataType) -> Any:
    """Return a bound as the value that a sample has; None if there is none."""
    of = pa.types
    if value is None:
        return None
    if of.is_integer(type_):
        return int(value)
    if of.is_floating(type_):
        return None if math.isnan(value) else float(value)
    if of.is_string(type_):
        return value if len(value) <= _MAX_WHOLE_TEXT else None
    return np.datetime64(value, "D") if of.is_date(type_) else None
