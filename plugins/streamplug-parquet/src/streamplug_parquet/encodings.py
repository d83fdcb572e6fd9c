"""The encodings of Parquet by their texts: types of Arrow, with a question mark where values may be None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import pyarrow as pa

from streamplug.errors import ConfigError
from streamplug.interfaces import Encoding
from streamplug_parquet import values
from streamplug_parquet.types import plain, type_of

_SOME = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float",
    "double", "string", "binary", "date32", "timestamp[us]", "duration[us]", "decimal128(38, 9)",
    "list<int32>", "fixed_size_list<float>[3]", "struct<a: int64, b: string>", "int64?",
)  # fmt: skip


class ArrowTypes(Mapping[str, Encoding]):
    """Every type of Arrow that can be read; a few stand for all of them where they are listed."""

    def __getitem__(self, spec: str) -> Encoding:
        try:
            return _encoding(spec)
        except ConfigError as error:
            raise KeyError(spec) from error

    def __iter__(self) -> Iterator[str]:
        return iter(_SOME)

    def __len__(self) -> int:
        return len(_SOME)


@lru_cache(1024)
def _encoding(spec: str) -> Encoding:
    type_ = plain(type_of(spec.removesuffix("?")))
    return _kind(type_)(type_, nullable=spec.endswith("?"))


def _kind(type_: pa.DataType) -> type[values.Value]:
    of = pa.types
    if values.fixed_of(type_) is not None:
        return values.Fixed
    if of.is_string(type_):
        return values.Text
    if of.is_fixed_size_binary(type_):
        return values.FixedBinary
    if of.is_binary(type_):
        return values.Binary
    if of.is_decimal(type_):
        return values.Decimals
    if of.is_list(type_) and values.fixed_of(type_.value_type) is not None:
        return values.Lists
    return values.File if values.is_file(type_) else values.Nested
