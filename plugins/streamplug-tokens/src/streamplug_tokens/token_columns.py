"""Columns that have one number for each token of a document: the tokens, labels, masks, weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamplug.errors import ConfigError
from streamplug.index import Schema
from streamplug.interfaces import VectorColumn, bypasses
from streamplug.source import OpenSources, OpenStream
from streamplug_tokens.number_lists import NumberLists, with_number_lists
from streamplug_tokens.options import TokenRowOptions


class TokenColumn(NamedTuple):
    """A column of one number for each token.

    Attributes:
        name: Name of the column.
        dtype: Dtype of its numbers.
        padding: Number that fills rows up.
    """

    name: str
    dtype: np.dtype[Any]
    padding: float


def further_columns(opened: OpenSources, options: TokenRowOptions) -> list[TokenColumn]:
    """Return the columns that rows have beside their tokens.

    Raises:
        ConfigError: If a stream lacks one, has no one-dimensional arrays in it or those of another dtype, if
            it is stored in another data set than the tokens, or if the padding is beyond its dtype.
    """
    found = []
    for name in options.columns:
        _check_data_set(opened, options.column, name)
        stored = with_number_lists(opened.stored(name), options)
        streams = [stream for stream in stored if len(stream.index)]
        dtypes = [
            _column_dtype(stream, name, options.column_dtypes.get(name)) for stream in streams
        ]
        if len(set(dtypes)) > 1:
            names = [dtype.name for dtype in dtypes]
            raise ConfigError(
                f"column {name!r}: the streams have different dtypes, {names}: write them alike"
            )
        for dtype in dtypes[:1]:
            padding = options.padding_of(name)
            _check_padding(name, padding, dtype)
            found.append(TokenColumn(name, dtype, padding))
    return found


def _check_data_set(opened: OpenSources, tokens: str, name: str) -> None:
    for stream, other in zip(opened.stored(tokens), opened.stored(name)):
        if stream.where != other.where:
            raise ConfigError(
                f"column {name!r} is stored in {other.where}, but the tokens, column {tokens!r}, in "
                f"{stream.where}: write the view as a data set with `streamplug view compact`"
            )


def _column_dtype(stream: OpenStream, name: str, dtype_name: str | None) -> np.dtype[Any]:
    dtypes = {_schema_dtype(stream, schema, name, dtype_name) for schema in stream.index.schemas}
    if len(dtypes) != 1:
        raise ConfigError(
            f"{stream.where}: column {name!r} has the dtypes {sorted(map(str, dtypes))}"
        )
    return dtypes.pop()


def _schema_dtype(
    stream: OpenStream, schema: Schema, name: str, dtype_name: str | None
) -> np.dtype[Any]:
    column = schema.column(name)
    if column is None:
        known: Sequence[str] = [column.name for column in schema.columns]
        raise ConfigError(
            f"{stream.where} has no column {name!r} of columns=, only {', '.join(map(repr, known))}"
        )
    what = f"{stream.where}: column {name!r}, {column.spec!r}"
    is_list = isinstance(column.encoding, NumberLists)
    is_vector = isinstance(column.encoding, VectorColumn) and not bypasses(
        type(column.encoding), "lengths", "decode"
    )
    if not (is_list or is_vector):
        raise ConfigError(
            f"{what}: columns= takes columns with one number for each token, stored as 'bytes', "
            "one-dimensional 'ndarray' or lists, and without a decoder that changes them"
        )
    stored_dtype = column.encoding.item
    if dtype_name is None:
        if stored_dtype is None:
            raise ConfigError(
                f"{what}, does not say of what dtype its numbers are: give column_dtypes={{{name!r}: …}}"
            )
        return stored_dtype
    try:
        dtype: np.dtype[Any] = np.dtype(dtype_name)
    except (TypeError, ValueError):
        dtype = np.dtype(object)
    if dtype.kind not in "biuf" or dtype.byteorder == ">":
        raise ConfigError(
            f"column_dtypes[{name!r}]={dtype_name!r:.60}: expected the name of a little-endian dtype of "
            "numbers, such as 'float32'"
        )
    dtype = dtype.newbyteorder("<")
    if stored_dtype is not None and stored_dtype != dtype:
        raise ConfigError(
            f"{what}, has numbers of {stored_dtype}, not column_dtypes[{name!r}]={dtype_name!r}"
        )
    return dtype


def _check_padding(name: str, padding: float, dtype: np.dtype[Any]) -> None:
    fits = dtype.kind == "f"
    if dtype.kind == "b":
        fits = padding in (0, 1)
    elif dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        fits = bounds.min <= padding <= bounds.max and padding == int(padding)
    if not fits:
        raise ConfigError(
            f"column {name!r}: its padding, {padding}, is no {dtype.name}; give "
            f"column_padding={{{name!r}: …}}, or store the column with another dtype"
        )
