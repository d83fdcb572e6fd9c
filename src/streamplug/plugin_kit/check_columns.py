"""Checks that a sample or a batch has the columns of the data set."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from streamplug.errors import EncodeError, EncodeTypeError


def check_names(given: Mapping[str, Any], names: AbstractSet[str]) -> None:
    """Check that a sample has the columns of its data set, and no others.

    Args:
        given: A value, or the values of a batch, by column.
        names: Those of the data set.

    Raises:
        EncodeError: If it has not; says which are missing or unknown.
    """
    try:
        if given.keys() == names:
            return
    except AttributeError:
        raise EncodeTypeError(
            f"a sample maps column names to values, got {type(given).__name__}: {given!r:.80}"
        ) from None
    missing = sorted(names - given.keys())
    unknown = sorted(map(str, given.keys() - names))
    raise EncodeError(
        f"a sample must have the columns {sorted(names)}"
        + (f"; missing: {missing}" if missing else "")
        + (f"; unknown: {unknown}" if unknown else "")
    )


def count_of(columns: Mapping[str, Any], names: AbstractSet[str]) -> int:
    """Return how many samples a batch has.

    Args:
        columns: A list or an array of the values of each column.
        names: Of the columns of the data set.

    Raises:
        EncodeError: If it has other columns, or they differ in length.
    """
    check_names(columns, names)
    return length_of(columns)


def length_of(columns: Mapping[str, Any]) -> int:
    """Return how many values each of some columns has, of which there is at least one.

    Raises:
        EncodeError: If they differ in that, or one has no length.
    """
    lengths = {name: _length(name, values) for name, values in columns.items()}
    count = next(iter(lengths.values()))
    if set(lengths.values()) != {count}:
        raise EncodeError(f"the columns of a batch differ in length: {lengths}")
    return count


def _length(column: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError as error:
        raise EncodeTypeError(
            f"column {column!r}: a batch has a list or an array of values, got "
            f"{type(values).__name__}: {values!r:.80}"
        ) from error
