"""Columns of lists of numbers, of Parquet and of JSON, read as arrays of one dtype."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeError
from streamplug.index import Schema
from streamplug.interfaces import Column, Encoding
from streamplug.plugin_kit import short_repr
from streamplug.source import OpenSources, OpenStream
from streamplug_tokens.options import TokenRowOptions

_ROUNDED_FROM = 2.0**53
"""Integer from which on floats leave out some."""


class NumberLists(Encoding):
    """Lists of numbers, stored back to back or as JSON, that decode to arrays.

    It is no `VectorColumn`, as arrays may have another dtype than what is stored.

    Attributes:
        item: Dtype of the arrays; None if it is not known yet.
        length: Numbers of each list if all have as many.
    """

    def __init__(
        self, stored: np.dtype[Any] | None, dtype: np.dtype[Any] | None, length: int | None = None
    ) -> None:
        """Read lists of numbers stored as a dtype, or as JSON if that is None, as arrays of `dtype`."""
        self._stored, self.item, self.length = stored, dtype, length
        if length is not None and stored is not None:
            self.size = length * stored.itemsize

    def encode(self, value: Any) -> bytes:
        raise EncodeError("lists of numbers are only read as arrays; write an 'ndarray' column")

    def decode(self, data: memoryview) -> NDArray[Any]:
        numbers = _parse_json(data) if self._stored is None else np.frombuffer(data, self._stored)
        if self.item is None:
            raise DecodeError("the dtype of its numbers is not known")
        return convert_numbers(numbers, self.item)


def _parse_json(data: memoryview) -> NDArray[Any]:
    try:
        values = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from error
    if not isinstance(values, list):
        raise DecodeError(f"expected a list of numbers, got {short_repr(values)}")
    try:
        numbers = np.array(values) if values else np.empty(0, np.int64)
    except ValueError:  # lists of several lengths
        numbers = np.empty(0, object)
    if numbers.dtype.kind == "f" and (np.abs(numbers) >= _ROUNDED_FROM).any():
        numbers = _exact(values, numbers)
    if numbers.ndim != 1 or numbers.dtype.kind not in "biuf":
        raise DecodeError(f"expected a list of numbers that fit 64 bits, got {short_repr(values)}")
    return numbers


def _exact(values: list[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as integers if they are whole: of integers, floats have the first 53 bits only."""
    try:
        whole = [int(value) for value in values]
        if whole == values:
            return np.array(whole, np.uint64 if max(whole) > np.iinfo(np.int64).max else np.int64)
    except (ValueError, OverflowError):  # NaN or infinite, or beyond 64 bits
        pass
    return numbers


def convert_numbers(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers as another dtype.

    Raises:
        DecodeError: If one is beyond it.
    """
    if numbers.dtype != dtype and dtype.kind != "f" and len(numbers):
        low, high = (0, 1) if dtype.kind == "b" else _bounds(dtype)
        is_whole = numbers.dtype.kind != "f" or bool((numbers == np.floor(numbers)).all())
        # Compared as numbers of Python, which are exact at any size.
        least, most = numbers.min().item(), numbers.max().item()
        if not is_whole or least < low or most > high:
            outside = next(n for n in numbers.tolist() if not (low <= n <= high and n == int(n)))
            raise DecodeError(
                f"{outside} is no {dtype.name}, which is {low} to {high}; pass another dtype"
            )
    with np.errstate(over="ignore"):  # an error that names the number is raised instead
        converted: NDArray[Any] = numbers.astype(dtype)
    if dtype.kind == "f" and numbers.dtype != dtype:
        is_beyond = np.isinf(converted) & np.isfinite(numbers)
        if is_beyond.any():
            outside = numbers[is_beyond][0].item()
            raise DecodeError(f"{outside} is beyond {dtype.name}; pass another dtype")
    return converted


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def with_number_lists(opened: OpenSources, options: TokenRowOptions) -> OpenSources:
    """Return streams whose columns of lists are read as arrays, as far as rows consist of them."""
    dtypes = {name: options.column_dtypes.get(name) for name in options.columns}
    dtypes[options.column] = options.dtype
    return OpenSources([_read_lists(stream, dtypes) for stream in opened], opened.columns)


def _read_lists(stream: OpenStream, dtypes: dict[str, str | None]) -> OpenStream:
    # What a decoder returns are not the stored lists.
    decoded = stream.stream.decoders or {}
    dtypes = {name: dtype for name, dtype in dtypes.items() if name not in decoded}
    index = copy(stream.index)
    index.schemas = tuple(_with_lists(schema, dtypes) for schema in index.schemas)
    return replace(stream, index=index)


def _with_lists(schema: Schema, dtypes: dict[str, str | None]) -> Schema:
    columns = [
        _with_list(column, dtypes[column.name]) if column.name in dtypes else column
        for column in schema.columns
    ]
    return replace(schema, columns=tuple(columns))


def _with_list(column: Column, dtype_name: str | None) -> Column:
    encoding = column.encoding
    try:
        dtype = None if dtype_name is None else np.dtype(dtype_name)
    except (TypeError, ValueError):  # it is refused where the column is checked
        dtype = None
    stored, length = encoding.list_item, None
    if stored is not None and len(stored.shape) == 1:
        # Of nullable lists of one length, some may be missing.
        stored, length = stored.base, None if encoding.size is None else stored.shape[0]
    if stored is not None and not stored.shape:
        return replace(column, encoding=NumberLists(stored, dtype or stored, length))
    if column.spec == "json":
        return replace(column, encoding=NumberLists(None, dtype))
    return column
