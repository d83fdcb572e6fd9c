"""Checks of the columns of index entries, samples and batches, and of their encoded values."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from streamplug.errors import EncodeError, EncodeTypeError, InvalidIndexError, StreamplugError

_SINGLE_VALUES = (str, bytes, bytearray, Mapping, AbstractSet)
"""Types with a length that are single values, or have no order."""


def check_names(columns: Mapping[str, Any], names: AbstractSet[str]) -> None:
    """Check that a sample or a batch has exactly the columns `names`.

    Raises:
        EncodeError: If columns are missing or unknown.
    """
    try:
        keys = set(columns.keys())  # those of a table may be an array, which compares elements
    except AttributeError:
        raise EncodeTypeError(
            f"a sample maps column names to values, got {type(columns).__name__}: {columns!r:.80}"
        ) from None
    if keys == names:
        return
    missing = sorted(names - keys)
    unknown = sorted(map(str, keys - names))
    raise EncodeError(
        f"a sample must have the columns {sorted(names)}"
        + (f"; missing: {missing}" if missing else "")
        + (f"; unknown: {unknown}" if unknown else "")
    )


def count_of(columns: Mapping[str, Any], names: AbstractSet[str]) -> int:
    """Return the number of samples in a batch of exactly the given columns.

    Args:
        columns: A list or an array of values by column.
        names: Columns of the data set.

    Raises:
        EncodeError: If it has other columns, or they differ in length.
    """
    check_names(columns, names)
    return length_of(columns)


def length_of(columns: Mapping[str, Any]) -> int:
    """Return the common length of at least one column.

    Raises:
        EncodeError: If the columns differ in length, or one has no length.
    """
    lengths = {name: _length(name, values) for name, values in columns.items()}
    count = next(iter(lengths.values()))
    if set(lengths.values()) != {count}:
        raise EncodeError(f"the columns of a batch differ in length: {lengths}")
    return count


def names_and_specs(entry: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the column names and the encodings of a shard's index entry, which is untrusted.

    They are its ``column_names`` and ``column_encodings``, as in mosaicml-streaming.

    Raises:
        InvalidIndexError: If they are missing, or no names of columns with an encoding each.
    """
    names, specs = (_strings(entry, key) for key in ("column_names", "column_encodings"))
    if len(names) != len(specs) or len(set(names)) != len(names) or not names:
        raise InvalidIndexError(
            "column_names must be distinct and at least one, and column_encodings as many; got "
            f"{names!r:.80} and {specs!r:.80}"
        )
    return names, specs


def encoded_bytes(body: Any) -> bytes:
    """Return a copy of what an encoding returned instead of bytes; the length of an array counts items.

    Raises:
        EncodeTypeError: If it is no buffer.
    """
    if isinstance(body, bytes):
        return body
    with suppress(TypeError):
        view = memoryview(body)
        if view.ndim:
            return view.tobytes()
    raise EncodeTypeError(
        f"its encoding returned {type(body).__name__}: {body!r:.80}; expected bytes"
    )


def unencodable_error(column: str, value: object, error: Exception) -> StreamplugError:
    """Return the error for a value, or a column of values, for which an encoding raised an error."""
    if isinstance(error, StreamplugError):
        return type(error)(f"column {column!r}: {error}")
    return EncodeTypeError(
        f"column {column!r}: cannot encode {type(value).__name__}: {type(error).__name__}: {error}"
    )


def _length(column: str, values: Any) -> int:
    try:
        if not isinstance(values, _SINGLE_VALUES):
            return len(values)
    except TypeError:
        pass
    raise EncodeTypeError(
        f"column {column!r}: a batch has a list or an array of values, got "
        f"{type(values).__name__}: {values!r:.80}"
    )


def _strings(entry: Mapping[str, Any], key: str) -> list[str]:
    value = entry.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidIndexError(f"{key} must be a list of strings, got {value!r:.60}")
    return value
