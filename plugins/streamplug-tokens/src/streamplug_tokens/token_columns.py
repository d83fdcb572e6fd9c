"""Columns that have one number for each token of a document: the tokens, labels, masks, weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamplug.errors import ConfigError
from streamplug.source import OpenSources
from streamplug_tokens.column_dtype import NUMBERS, column_dtype
from streamplug_tokens.number_lists import with_number_lists
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
        option, given = f"column_dtypes[{name!r}]", options.column_dtypes.get(name)
        dtypes = [
            column_dtype(stream, name, given, option=option, kind=NUMBERS) for stream in streams
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
