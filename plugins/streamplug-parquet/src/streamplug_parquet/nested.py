"""Nested lists and structs: types that can be written, and copies of single values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamplug.errors import ConfigError, EncodeError
from streamplug_parquet.arrow_conversion import masked_error
from streamplug_parquet.sizes import HEAD, width_of
from streamplug_parquet.types import spec_of

ValueCopier: TypeAlias = "Callable[[Any], tuple[Any, int]]"
"""Copies a value and returns its size in bytes."""


def is_file(type_: pa.DataType) -> bool:
    """Return whether a type is a file: a struct of bytes and an optional path."""
    if not pa.types.is_struct(type_):
        return False
    fields = {field.name: field.type for field in type_}
    return fields.get("bytes") == pa.binary() and fields.keys() <= {"bytes", "path"}


def writable(type_: pa.DataType) -> None:
    """Refuse nested types that cannot be written.

    Raises:
        ConfigError: If the type cannot be written.
    """
    of = pa.types
    if of.is_struct(type_):
        for field in type_:
            writable(field.type)
    elif of.is_list(type_) or of.is_fixed_size_list(type_):
        writable(type_.value_type)
    elif not (
        of.is_boolean(type_)
        or of.is_integer(type_)
        or of.is_floating(type_)
        or of.is_string(type_)
        or of.is_binary(type_)
    ):
        raise ConfigError(f"{spec_of(type_)} is read, but not written, at this place of a column")


def check_fields(value: Any, type_: pa.DataType) -> None:
    """Refuse fields that the struct does not have, and masked arrays: Arrow would drop the fields and masks.

    Raises:
        EncodeError: If there are such fields or arrays.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise masked_error()
    if isinstance(value, dict) and pa.types.is_struct(type_):
        fields = {field.name: field.type for field in type_}
        if surplus := [name for name in value if name not in fields]:
            raise EncodeError(f"takes the fields {list(fields)}, got {surplus}, too")
        for name, inner in value.items():
            check_fields(inner, fields[name])
    elif isinstance(value, (list, tuple)) and _has_nested(type_):
        for inner in value:
            check_fields(inner, type_.value_type)


def _has_nested(type_: pa.DataType) -> bool:
    is_list = pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_)
    return is_list and bool(pa.types.is_nested(type_.value_type))


def value_copier(type_: pa.DataType) -> ValueCopier:
    """Return a function that copies a nested value for Arrow and returns its size in bytes.

    The function accepts only plain Python values and raises any exception for others. Structs become tuples.
    """
    of = pa.types
    if of.is_struct(type_):
        return _struct([(field.name, value_copier(field.type)) for field in type_])
    if of.is_list(type_) or of.is_fixed_size_list(type_):
        return _list(type_, value_copier(type_.value_type))
    width = width_of(type_)
    if width is not None:
        return _number(type_, width)
    return _text if of.is_string(type_) else _bytes


def _struct(fields: list[tuple[str, ValueCopier]]) -> ValueCopier:
    names = {name for name, _ in fields}
    nothing = None, sum(copy_item(None)[1] for _, copy_item in fields)

    def copy_struct(value: Any) -> tuple[Any, int]:
        if value is None:
            return nothing
        if type(value) is not dict or not value.keys() <= names:
            raise TypeError
        copies, total = [], 0
        for name, copy_item in fields:
            child, size = copy_item(value.get(name))
            copies.append(child)
            total += size
        return tuple(copies), total

    return copy_struct


def _list(type_: pa.DataType, copy_item: ValueCopier) -> ValueCopier:
    fixed = pa.types.is_fixed_size_list(type_)
    length, head = (type_.list_size, 0) if fixed else (None, HEAD)
    nothing = None, width_of(type_) or head

    def copy_list(value: Any) -> tuple[Any, int]:
        if value is None:
            return nothing
        if type(value) is not list or length not in (None, len(value)):
            raise TypeError
        pairs = [copy_item(item) for item in value]
        return [item for item, _ in pairs], head + sum([size for _, size in pairs])

    return copy_list


def _number(type_: pa.DataType, width: int) -> ValueCopier:
    kind: type = float if pa.types.is_floating(type_) else bool

    def copy_number(value: Any) -> tuple[Any, int]:
        if value is None or type(value) is kind:
            return value, width
        raise TypeError

    if not pa.types.is_integer(type_):
        return copy_number
    bounds = np.iinfo(str(type_))
    lowest, highest = int(bounds.min), int(bounds.max)

    def keep_integer(value: Any) -> tuple[Any, int]:
        if value is None or (type(value) is int and lowest <= value <= highest):
            return value, width
        raise TypeError

    return keep_integer


def _text(value: Any) -> tuple[Any, int]:
    if type(value) is str:
        return value, HEAD + (len(value) if value.isascii() else len(value.encode()))
    if value is None:
        return None, HEAD
    raise TypeError


def _bytes(value: Any) -> tuple[Any, int]:
    if type(value) is bytes:
        return value, HEAD + len(value)
    if value is None:
        return None, HEAD
    raise TypeError
