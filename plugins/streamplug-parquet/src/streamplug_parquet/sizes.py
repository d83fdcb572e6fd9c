"""Sizes of values before compression, for the limits of shards and row groups.

A value of fixed size counts its bytes, text and bytes their length plus 4, a list its items plus 4, a
map its keys and values plus 4, a struct its fields. None counts like an empty value. Arrow arrays and single
values count the same.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamplug.types import Int64

HEAD = 4
"""Bytes that a value of variable size counts besides its content."""


@lru_cache(1024)
def width_of(type_: pa.DataType) -> int | None:
    """Return the bytes of each value of a type, or None if they vary."""
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
    """Return the bytes of each value of an array: int64, shape ``[n]``, or one number for all."""
    type_ = array.type
    width = width_of(type_)
    if width is not None:
        return width
    if isinstance(array, pa.ChunkedArray):
        chunk_sizes = [np.broadcast_to(sizes_of(chunk), len(chunk)) for chunk in array.chunks]
        return np.concatenate(chunk_sizes) if chunk_sizes else np.zeros(0, np.int64)
    if pa.types.is_struct(type_):
        return sum((sizes_of(field) for field in array.flatten()), start=np.int64(0))
    if pa.types.is_fixed_size_list(type_):
        counts = np.where(_numbers(array.is_valid()), type_.list_size, 0)
        return _summed(sizes_of(array.flatten()), counts)
    if pa.types.is_map(type_):
        array = entries_of(array)
        type_ = array.type
    if pa.types.is_list(type_):
        return HEAD + _summed(sizes_of(array.flatten()), _numbers(pc.list_value_length(array)))
    return HEAD + _numbers(pc.binary_length(array))


def entries_of(maps: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of their entries, which are structs of a key and a value."""
    return maps.cast(entries_type(maps.type))


def entries_type(type_: pa.MapType) -> pa.ListType:
    """Return the type of the lists of entries of maps of a type."""
    return pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))


def _summed(sizes: int | Int64, counts: Int64) -> Int64:
    """Return the sums of consecutive groups of sizes, given the number of items of each group."""
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
