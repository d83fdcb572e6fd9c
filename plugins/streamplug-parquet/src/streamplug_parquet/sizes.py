"""How many bytes values count, against the size of a shard and of a row group, before they are compressed.

A number counts what it takes, text and bytes their length and 4, a list 4 and what is in it, a struct its fields. None
counts what an empty value does. An array of Arrow and single values count the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamplug.types import Int64

HEAD = 4
"""What a value of variable size counts besides what is in it."""

Keep: TypeAlias = "Callable[[Any], tuple[Any, int]]"


@lru_cache(1024)
def width_of(type_: pa.DataType) -> int | None:
    """Return what each value of a type counts, None if they differ."""
    of = pa.types
    if of.is_boolean(type_):
        return 1
    if of.is_fixed_size_list(type_):
        inner = width_of(type_.value_type)
        return None if inner is None else inner * int(type_.list_size)
    if of.is_struct(type_):
        widths = [width_of(field.type) for field in type_]
        return None if None in widths else sum(widths)  # type: ignore[arg-type]  # none of them is None
    try:
        return int(type_.bit_width) // 8
    except ValueError:
        return None


def sizes_of(array: pa.Array | pa.ChunkedArray) -> int | Int64:
    """Return what each value of an array counts: int64, shape ``[n]``, or one number for all."""
    type_ = array.type
    width = width_of(type_)
    if width is not None:
        return width
    if isinstance(array, pa.ChunkedArray):
        each = [np.broadcast_to(sizes_of(chunk), len(chunk)) for chunk in array.chunks]
        return np.concatenate(each) if each else np.zeros(0, np.int64)
    if pa.types.is_struct(type_):
        return sum((sizes_of(field) for field in array.flatten()), start=np.int64(0))  # type: ignore[return-value]  # one of them is an array
    if pa.types.is_fixed_size_list(type_):
        counts = np.where(_numbers(array.is_valid()), type_.list_size, 0)
        return _summed(sizes_of(array.flatten()), counts)
    if pa.types.is_list(type_):
        return HEAD + _summed(sizes_of(array.flatten()), _numbers(pc.list_value_length(array)))
    return HEAD + _numbers(pc.binary_length(array))


def _summed(sizes: int | Int64, counts: Int64) -> Int64:
    """Return what some values each count together, given how many at a time."""
    if isinstance(sizes, int):
        return counts * sizes
    ends = np.cumsum(counts)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    total: Int64 = before[ends] - before[ends - counts]
    return total


def _numbers(array: pa.Array) -> Int64:
    array = array.fill_null(0) if array.null_count else array
    numbers: Int64 = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


# -- single values ------------------------------------------------------------------------


def keeper(type_: pa.DataType) -> Keep:
    """Return what copies a nested value as Arrow takes it, and says what it counts.

    It takes plain values of Python alone, and raises anything for others. Structs become tuples.
    """
    of = pa.types
    if of.is_struct(type_):
        return _struct([(field.name, keeper(field.type)) for field in type_])
    if of.is_list(type_) or of.is_fixed_size_list(type_):
        return _list(type_, keeper(type_.value_type))
    width = width_of(type_)
    if width is not None:
        return _number(type_, width)
    return _text if of.is_string(type_) else _bytes


def _struct(fields: list[tuple[str, Keep]]) -> Keep:
    names = {name for name, _ in fields}
    nothing = None, sum(keep(None)[1] for _, keep in fields)

    def keep_struct(value: Any) -> tuple[Any, int]:
        if value is None:
            return nothing
        if type(value) is not dict or not value.keys() <= names:
            raise TypeError
        kept, total = [], 0
        for name, keep in fields:
            each, size = keep(value.get(name))
            kept.append(each)
            total += size
        return tuple(kept), total

    return keep_struct


def _list(type_: pa.DataType, keep: Keep) -> Keep:
    fixed = pa.types.is_fixed_size_list(type_)
    length, head = (type_.list_size, 0) if fixed else (None, HEAD)
    nothing = None, width_of(type_) or head

    def keep_list(value: Any) -> tuple[Any, int]:
        if value is None:
            return nothing
        if type(value) is not list or length not in (None, len(value)):
            raise TypeError
        pairs = [keep(each) for each in value]
        return [each for each, _ in pairs], head + sum([size for _, size in pairs])

    return keep_list


def _number(type_: pa.DataType, width: int) -> Keep:
    kind: type = float if pa.types.is_floating(type_) else int
    least, most = None, None
    if pa.types.is_boolean(type_):
        kind = bool
    elif kind is int:
        bounds = np.iinfo(str(type_))
        least, most = int(bounds.min), int(bounds.max)

    def keep_number(value: Any) -> tuple[Any, int]:
        if value is None or (
            type(value) is kind and (least is None or least <= value <= most)
        ):
            return value, width
        raise TypeError

    return keep_number


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
