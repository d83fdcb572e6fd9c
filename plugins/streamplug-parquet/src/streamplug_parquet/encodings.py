"""Encodings named by Arrow types, with a trailing question mark if values are nullable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from streamplug.errors import ConfigError
from streamplug.interfaces import Encoding
from streamplug_parquet import values as kinds
from streamplug_parquet.arrow_conversion import arrow_array
from streamplug_parquet.nested import is_file, writable
from streamplug_parquet.types import plain, spec_of, type_of

_EXAMPLE_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float",
    "double", "string", "binary", "date32", "timestamp[us]", "duration[us]", "decimal128(38, 9)",
    "list<int32>", "fixed_size_list<float>[3]", "struct<a: int64, b: string>",
    "map<string, int64>", "int64?",
)  # fmt: skip


class ArrowTypes(Mapping[str, Encoding]):
    """Encodings of all readable Arrow types; iteration yields only examples."""

    def __getitem__(self, spec: str) -> Encoding:
        try:
            return _encoding(spec)
        except ConfigError as error:
            raise KeyError(spec) from error

    def __iter__(self) -> Iterator[str]:
        return iter(_EXAMPLE_TYPES)

    def __len__(self) -> int:
        return len(_EXAMPLE_TYPES)


@lru_cache(1024)
def _encoding(spec: str) -> Encoding:
    type_ = plain(type_of(spec.removesuffix("?")))
    return _kind(type_)(type_, nullable=spec.endswith("?"))


def _kind(type_: pa.DataType) -> type[kinds.ArrowValue]:
    of = pa.types
    if kinds.fixed_of(type_) is not None:
        return kinds.Fixed
    if of.is_string(type_):
        return kinds.Text
    if of.is_fixed_size_binary(type_):
        return kinds.FixedBinary
    if of.is_binary(type_):
        return kinds.Binary
    if of.is_decimal(type_):
        return kinds.Decimals
    if of.is_list(type_) and kinds.fixed_of(type_.value_type) is not None:
        return kinds.Lists
    return kinds.FileStruct if is_file(type_) else kinds.Nested


def encoding_of(values: Any) -> str | None:
    """Return the Arrow type of values, with a question mark if there are nulls; None if Arrow has none."""
    try:
        if isinstance(values, np.ndarray) and values.ndim > 1:
            type_ = pa.from_numpy_dtype(values.dtype)
            for size in reversed(values.shape[1:]):
                type_ = pa.list_(type_, size)
            return spec_of(type_)
        array = values if hasattr(values, "null_count") else arrow_array(values)
        if not isinstance(array, (pa.Array, pa.ChunkedArray)):  # a Polars series
            array = arrow_array(values.to_list())
        type_ = plain(array.type)
        if _kind(type_) is kinds.Nested or pa.types.is_null(type_):
            writable(type_)
        return spec_of(type_) + ("?" if array.null_count else "")
    except (pa.ArrowException, ConfigError, ValueError, TypeError, OverflowError):
        return None
