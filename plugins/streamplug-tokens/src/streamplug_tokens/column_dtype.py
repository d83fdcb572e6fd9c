"""Dtype of a column that has one number for each token of a document."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamplug.errors import ConfigError, prefix_errors
from streamplug.interfaces import Encoding, VectorColumn, bypasses
from streamplug.source import OpenStream
from streamplug_tokens.number_lists import NumberLists


class NumberKind(NamedTuple):
    """What a column may have.

    Attributes:
        name: Name of its numbers in errors.
        wanted: What they are in errors.
        kinds: Kinds of their dtypes, as `numpy.dtype.kind`.
    """

    name: str
    wanted: str
    kinds: str


TOKENS = NumberKind("tokens", "whole numbers", "iu")
NUMBERS = NumberKind("numbers", "numbers", "biuf")


def column_dtype(
    stream: OpenStream, name: str, dtype_name: str | None, *, option: str, kind: NumberKind
) -> np.dtype[Any]:
    """Return the dtype of the numbers of a column.

    Args:
        stream: The stream.
        name: Name of the column.
        dtype_name: Dtype that was given, for columns that do not say theirs; None if none was.
        option: Name of the option that gives it, for errors.
        kind: What the column may have.

    Raises:
        ConfigError: If there is no such column, it has no such numbers, or their dtype is unknown or another
            one than was given.
    """
    given = None if dtype_name is None else _given_dtype(dtype_name, option)
    dtypes = set()
    for schema in stream.index.schemas:
        column = schema.column(name)
        if column is None:
            known = ", ".join(repr(column.name) for column in schema.columns)
            raise ConfigError(f"{stream.where} has no column {name!r}, only {known}")
        with prefix_errors(f"{stream.where}: column {name!r}, {column.spec!r}", ConfigError):
            dtypes.add(_dtype_of(column.encoding, given, option, kind))
    if len(dtypes) != 1:
        raise ConfigError(
            f"{stream.where}: column {name!r} has the dtypes {sorted(map(str, dtypes))}"
        )
    return dtypes.pop()


def _given_dtype(dtype_name: str, option: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(dtype_name)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{option}={dtype_name!r:.60}: expected the name of a dtype, such as 'uint16'"
        ) from None
    if dtype.byteorder == ">":
        raise ConfigError(
            f"{option}={dtype_name!r}: numbers are read in little-endian byte order; write them in that"
        )
    little_endian: np.dtype[Any] = dtype.newbyteorder("<")
    return little_endian


def _dtype_of(
    encoding: Encoding, given: np.dtype[Any] | None, option: str, kind: NumberKind
) -> np.dtype[Any]:
    if not isinstance(encoding, VectorColumn | NumberLists):
        raise ConfigError(
            f"{kind.name} are read of 'bytes' or one-dimensional 'ndarray' columns, and of lists of "
            f"{kind.wanted} in Parquet and JSON, not as {type(encoding).__name__} decodes them; leave the "
            "column out of decoders= if it is there"
        )
    if isinstance(encoding, VectorColumn) and bypasses(type(encoding), "lengths", "decode"):
        raise ConfigError(
            f"{kind.name} are copied as they are stored, but {type(encoding).__name__} has a decode() of its "
            "own; leave it out of decoders=, and change rows in a loader's transform="
        )
    dtype: np.dtype[Any] | None = encoding.item or given
    if dtype is None:
        raise ConfigError(
            f"does not say of what dtype its {kind.name} are: pass {option}=, such as 'uint16'"
        )
    if given is not None and given != dtype:
        raise ConfigError(f"has {kind.name} of {dtype}, not {option}={given.name!r}")
    if dtype.kind not in kind.kinds:
        raise ConfigError(f"{kind.name} are {kind.wanted}, not {dtype}")
    return dtype
