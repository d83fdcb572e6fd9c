"""Conversion of samples to lines of JSON and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from streamplug.config import check_names, suggest_keywords
from streamplug.display import visible_json
from streamplug.errors import ConfigError, DataError
from streamplug.interfaces import Column
from streamplug.transfer import TemporaryDirectory
from streamplug_tools.options import Columns, Sources, streams
from streamplug_tools.raw_values import has_own_encoding
from streamplug_tools.row_access import Batch, Table, cache_locally
from streamplug_tools.selection_order import SequentialOrder
from streamplug_tools.sort_keys import batch_rows
from streamplug_tools.time_values import DECIMAL_PREFIXES, is_temporal, make_converter

_JSON_ENCODINGS = {"bytes", "json", "str", "str_decimal", "str_float", "str_int"}
_BYTES_KEY = "base64"


def is_json_readable(column: Column) -> bool:
    """Return whether JSON can represent the values of a column; others are written as stored."""
    name = column.spec.partition(":")[0]
    is_listed = name in _JSON_ENCODINGS or name == "ndarray"
    return is_listed or column.encoding.dtype is not None or has_own_encoding(column)


def spec_of_times(columns: Sequence[Column]) -> str:
    """Return the encoding of a column whose times, durations or decimals are written; ``"json"`` if none.

    Args:
        columns: The column in each schema. Only if all have a zone, times are marked as UTC.
    """
    specs = [column.spec for column in columns if is_temporal(column.spec)]
    return min(specs, key=lambda spec: "tz=" in spec, default="json")


def lines(batch: Batch, specs: Mapping[str, str]) -> Iterator[str]:
    """Yield each sample of a batch as a line, without a line break.

    Args:
        batch: The samples.
        specs: Result of `spec_of_times` for each column. JSON columns store times in the same way.
    """
    converters = {name: make_converter(specs.get(name, "json"), "json") for name in batch}
    batch = {name: c(batch[name]) if (c := converters[name]) else batch[name] for name in batch}
    for sample in batch_rows(batch):
        yield _dump(sample)


def strict_line(line: str) -> str:
    """Return a line with null for NaN and infinite numbers, which only some parsers read."""
    if "NaN" not in line and "Infinity" not in line:
        return line
    return _dump(json.loads(line, parse_constant=lambda _: None))


def _dump(value: object) -> str:
    # With escapes for unpaired surrogates, too, which are valid in JSON, not in UTF-8.
    return visible_json(json.dumps(value, default=_to_json, ensure_ascii=False))


def _to_json(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {_BYTES_KEY: b64encode(value).decode()}
    return str(value)


def values(columns: Mapping[str, Column], some: Sequence[str]) -> Batch:
    """Parse lines into a batch.

    Args:
        columns: Expected columns.
        some: The lines.

    Raises:
        DataError: If a line is not such a sample.
    """
    samples = [_sample(columns, line) for line in some]
    with np.errstate(over="raise"):  # a number that is too large for its array
        return {
            name: [_value(column, sample[name]) for sample in samples]
            for name, column in columns.items()
        }


def _sample(columns: Mapping[str, Column], line: str) -> dict[str, Any]:
    try:
        sample = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a line of JSON: {error}: {line!r:.200}") from None
    if not isinstance(sample, dict) or sample.keys() != columns.keys():
        raise DataError(
            f"expected a JSON object with the keys {sorted(columns)}, got {line!r:.200}"
        )
    return sample


def _value(column: Column, value: Any) -> Any:
    if column.spec == "json":
        return value
    try:
        if isinstance(value, dict) and value.keys() == {_BYTES_KEY}:
            return b64decode(value[_BYTES_KEY], validate=True)
        dtype = _dtype(column)
        if dtype is None:
            is_decimal = isinstance(value, str) and column.spec.startswith(DECIMAL_PREFIXES)
            return Decimal(value) if is_decimal else value
        array = np.asarray(value, dtype)
        if array.dtype.kind in "iub" and array.tolist() != value:
            raise ValueError(f"not an array of {array.dtype}")
        return array
    except (ArithmeticError, Base64Error, TypeError, ValueError) as error:
        raise DataError(f"column {column.name!r}: {error}: {value!r:.200}") from error


def _dtype(column: Column) -> Any:
    """Return the dtype of an array column; None for others."""
    name, _, rest = column.spec.partition(":")
    if name != "ndarray":
        return None
    dtype = column.encoding.dtype
    return rest.partition(":")[0] or None if dtype is None else dtype.base


@suggest_keywords
def as_lines(
    sources: Sources,
    *,
    begin: int = 0,
    end: int | None = None,
    select: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> Iterator[str]:
    """Yield samples as lines of JSON.

    Bytes are ``{"base64": …}``; values that JSON cannot represent are given as stored bytes. Times and
    durations are ISO 8601 text, in UTC with a ``Z`` if the column has a zone. Decimals are text. NaN and
    infinite numbers are ``NaN``, ``Infinity`` and ``-Infinity``, which `json.loads` reads, but not every
    parser.

    Args:
        sources: Paths, URLs or streams, concatenated.
        begin: First sample; negative values count from the end.
        end: End, exclusive; negative values count from the end; None for all.
        select: Columns to take; None for all.
        drop: Columns to leave out.

    Raises:
        StreamplugError: If a set or a column does not exist, no column is left, or samples cannot be read.
    """
    is_taken = Columns(select=select, drop=drop).takes
    with TemporaryDirectory() as folder:
        read = cache_locally(streams(sources), folder, whole=False)
        # No samples are read through it.
        table = Table(read, allow_unsafe_types=True, needed=is_taken)
        check_names(f"select={list(select or ())}", table.url, select or (), table.columns)
        check_names(f"drop={list(drop)}", table.url, drop, table.columns)
        names = [n for n in table.columns if is_taken(n) and n not in drop]
        if not names:
            raise ConfigError("no column is left to print; take fewer of them away")
        stored = [n for n in names if not all(map(is_json_readable, table.columns[n]))]
        table = Table(read, names, stored=stored)
        first, last, _ = slice(begin, end).indices(table.size)
        specs = {name: spec_of_times(table.columns[name]) for name in names}
        for _, batch in table.read(SequentialOrder(table.size), first, last):
            yield from lines({name: batch[name] for name in names}, specs)
