"""Conversion of times, durations and decimals to text, integers and seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from streamplug.errors import EncodeError
from streamplug.types import ColumnValues

DECIMAL_PREFIXES = ("decimal", "str_decimal")
"""What the names of encodings of decimals begin with."""

_TEMPORAL = re.compile(r"timestamp|date|time|duration|decimal")
_NESTED = re.compile(r"(list|struct|map|fixed_size_list)<|.*\?$", re.DOTALL)
_KIND = re.compile(r"date[0-9]+|[a-z]+")
_UNIT = re.compile(r"\[(s|ms|us|ns)[],]")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive; aware times are converted to UTC
_MAX_INTEGER_DIGITS = 4300
"""Digits of an integer that Python converts to text."""

_INTEGER_ENCODINGS = frozenset(
    ("int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "str_int")
)
_FLOAT_ENCODINGS = frozenset(("float", "float16", "float32", "float64", "str_float"))
_TEXT_ENCODINGS = frozenset(("str", "string"))

Convert = Callable[[ColumnValues], ColumnValues]


def is_temporal(spec: str) -> bool:
    """Return whether values of an encoding are or contain times, durations or decimals."""
    return _TEMPORAL.search(spec) is not None


def encoding_choices(spec: str) -> dict[str, str]:
    """Return the encodings that can store values of a temporal encoding, and the meaning of each."""
    if _NESTED.match(spec):
        return {"json": "times as ISO 8601 text, decimals as text, null where a value is missing"}
    if spec.startswith(DECIMAL_PREFIXES):
        return {"str_decimal": "exact", "str": "exact", "float64": "rounded", "float": "rounded"}
    since = "since 1970"
    if spec.startswith("duration"):
        since = "long"
    elif spec.startswith("time") and not spec.startswith("timestamp"):
        since = "since midnight"
    unit = _UNIT.search(spec)
    name = (
        "days" if spec == "date32" else "ms" if spec == "date64" else unit[1] if unit else "units"
    )
    whole, real = f"whole {name} {since}", f"seconds {since}"
    return {"int64": whole, "int": whole, "float64": real, "float": real, "str": "ISO 8601 text"}


def is_converted_alike(specs: Sequence[str], target: str) -> bool:
    """Return whether converted values mean the same: integers of one unit, or text of times in UTC or not.

    Integers beside times are not, as their unit is not known.

    Args:
        specs: Encodings of a column in several shards.
        target: Encoding to store.
    """
    temporal = [spec for spec in specs if is_temporal(spec)]
    name = target.partition(":")[0]
    if name in _INTEGER_ENCODINGS:
        if all(spec.startswith(DECIMAL_PREFIXES) for spec in temporal):
            return True
        kinds = [(_KIND.match(spec), _UNIT.search(spec)) for spec in specs]
        return len({(kind and kind[0], unit and unit[1]) for kind, unit in kinds}) <= 1
    if name in _TEXT_ENCODINGS or name == "json":
        return len({"tz=" in spec for spec in temporal}) <= 1
    return True


def make_converter(source: str, target: str) -> Convert | None:
    """Return a converter of a column; None if its values are stored unchanged.

    Args:
        source: Encoding of the column.
        target: Encoding to store.

    Returns:
        A function of a sequence of values, which raises `EncodeError` if one cannot be converted.
    """
    if source == target or not is_temporal(source):
        return None
    name = target.partition(":")[0]
    if name == "json":
        one: Callable[[Any], Any] = partial(_json, utc="tz=" in source)
    elif name in _TEXT_ENCODINGS:
        one = partial(_text, utc="tz=" in source)
    elif name in _INTEGER_ENCODINGS:
        unit = _UNIT.search(source)
        one = partial(_count, unit=unit[1] if unit else "us")
    elif name in _FLOAT_ENCODINGS:
        one = _seconds
    else:
        return None

    def convert(values: ColumnValues) -> ColumnValues:
        whole = (
            name in _INTEGER_ENCODINGS
            and isinstance(values, np.ndarray)
            and values.dtype.kind in "mM"
        )
        if whole and isinstance(values, np.ndarray):
            return values.astype(np.int64)
        return [value if value is None else one(value) for value in values]

    return convert


def _json(value: Any, *, utc: bool) -> Any:
    if isinstance(value, dict):
        return {key: _json(item, utc=utc) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item, utc=utc) for item in value]
    if isinstance(value, np.ndarray):
        return [_json(item, utc=utc) for item in value]
    return _text(value, utc=utc)


def _text(value: Any, *, utc: bool) -> Any:
    if isinstance(value, np.datetime64):
        return f"{value}Z" if utc else str(value)
    if isinstance(value, datetime):
        return f"{value.isoformat()}Z" if utc and value.tzinfo is None else value.isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (timedelta, np.timedelta64)):
        per = _PER_SECOND[np.datetime_data(np.timedelta64(value).dtype)[0]]
        seconds = Decimal(int(np.timedelta64(value).astype(np.int64))) / per
        return f"PT{seconds.normalize():f}S"
    return str(value) if isinstance(value, Decimal) else value


def _count(value: Any, *, unit: str) -> Any:
    """Return an integer number of units, or of days for a date."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.astype(np.int64))
    if isinstance(value, Decimal):
        if not value.is_finite() or value != value.to_integral_value():
            raise EncodeError(
                f"{value} is no whole number; store decimals as str_decimal or float64"
            )
        if value.adjusted() >= _MAX_INTEGER_DIGITS:  # a few characters can stand for gigabytes
            raise EncodeError(
                f"{value:.5e} has more than {_MAX_INTEGER_DIGITS} digits; store decimals as str_decimal"
            )
        return int(value)
    since = _time_since(value)
    if since is None:
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return since.days
    return since // timedelta(microseconds=1) * _PER_SECOND[unit] // 10**6


def _seconds(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, np.datetime64):
        unit: Any = np.datetime_data(value.dtype)[0]
        value = np.timedelta64(int(value.astype(np.int64)), unit)
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    since = _time_since(value)
    return value if since is None else since.total_seconds()


def _time_since(value: Any) -> timedelta | None:
    """Return the time since 1970 or since midnight; None for other types."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        since: timedelta = value - _EPOCH
        return since
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day) - _EPOCH  # noqa: DTZ001 - naive, as _EPOCH
    if isinstance(value, time):
        return datetime.combine(_EPOCH, value) - _EPOCH
    return None
