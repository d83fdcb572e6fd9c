"""Nested lists, maps and structs: types that can be written, and copies of single values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError
from streamplug_parquet.arrow_conversion import (
    NARROW_FLOATS,
    check_infinite,
    example,
    masked_error,
    takes_arrays,
    takes_instances,
)
from streamplug_parquet.sizes import HEAD, entries_of, entries_type, width_of
from streamplug_parquet.types import plain, spec_of

ValueCopier: TypeAlias = "Callable[[Any], tuple[Any, int]]"
"""Copies a value and returns its size in bytes."""


def is_file(type_: pa.DataType) -> bool:
    """Return whether a type is a file: a struct of bytes, which may all be missing, and an optional path."""
    if not pa.types.is_struct(type_):
        return False
    fields = {field.name: field.type for field in type_}
    kinds = {"bytes": (pa.binary(), pa.null()), "path": (pa.string(), pa.null())}
    return "bytes" in fields and all(type_ in kinds.get(n, ()) for n, type_ in fields.items())


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
    elif of.is_map(type_) and not of.is_nested(type_.key_type):  # which no key of a dict can be
        writable(type_.key_type)
        writable(type_.item_type)
    elif not (
        of.is_boolean(type_)
        or of.is_integer(type_)
        or of.is_floating(type_)
        or of.is_string(type_)
        or of.is_binary(type_)
    ):
        raise ConfigError(f"{spec_of(type_)} is read, but not written, at this place of a column")


def check_values(values: Sequence[Any], type_: pa.DataType, path: str = "") -> None:
    """Refuse values that Arrow would convert or drop at some depth, such as 1.5 for an integer.

    Args:
        values: Values of `type_`, or None. All are checked together, as types repeat.
        type_: A type that can be written.
        path: Names of the fields around the values, for errors.

    Raises:
        EncodeError: If a value has another type, a struct has other fields, a map has a key twice or None as
            a key, or an array has a mask.
    """
    if pa.types.is_struct(type_):
        records = _records(values, [field.name for field in type_])
        surplus = set(chain.from_iterable(records)) - {field.name for field in type_}
        if surplus:
            raise _surplus_error(type_, surplus)
        for field in type_:
            inner = [record[field.name] for record in records if field.name in record]
            check_values(inner, field.type, _join(path, field.name))
    elif _is_list(type_):
        lists, arrays = _split_lists(values, type_, path)
        for array in () if _is_nested(type_.value_type) else arrays:
            if not takes_instances(array.dtype.type, type_.value_type):
                raise _type_error(type_.value_type, path, f"an array of {array.dtype}")
            _check_numbers(array.reshape(-1), type_.value_type, path)
        check_values(list(chain.from_iterable(lists)), type_.value_type, path)
    elif pa.types.is_map(type_):
        entries = list(chain.from_iterable(_entries(values, type_, path)))
        check_values([key for key, _ in entries], type_.key_type, _join(path, "key"))
        check_values([item for _, item in entries], type_.item_type, _join(path, "value"))
    else:
        for kind in set(map(type, values)):
            # Arrow itself requires scalars of the same type.
            is_taken = kind is type(None) or issubclass(kind, pa.Scalar)
            if not (is_taken or takes_instances(kind, type_)):
                raise _type_error(type_, path, example(values, kind))
        _check_numbers(values, type_, path)


def _check_numbers(values: Any, type_: pa.DataType, path: str) -> None:
    """Raise `EncodeError` if finite numbers would become infinite."""
    if type_ not in NARROW_FLOATS:
        return
    try:
        array = pa.array(values, type_)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return  # as the conversion of the whole will say
    check_infinite(array, values, _in_field(path))


def _records(values: Sequence[Any], names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return structs as dicts. Arrow takes tuples of fields and lists of pairs, too, and refuses others."""
    if set(map(type, values)) <= {dict, type(None)}:
        return [value for value in values if value is not None]
    records: list[Mapping[str, Any]] = []
    for value in values:
        if isinstance(value, dict):
            records.append(value)
        elif isinstance(value, tuple):
            records.append(dict(zip(names, value)))
        elif isinstance(value, Sequence):
            with suppress(TypeError, ValueError):
                records.append(dict(value))
    return records


def _entries(values: Sequence[Any], type_: pa.DataType, path: str) -> list[list[tuple[Any, Any]]]:
    """Return the entries of each map; a map is a dict, or a sequence of tuples, as Arrow has it."""
    found = []
    for value in values:
        if value is None or isinstance(value, pa.Scalar):  # Arrow requires scalars of the same type
            continue
        entries = list(value.items()) if isinstance(value, Mapping) else as_entries(value)
        if entries is None:
            raise _type_error(type_, path, example([value], type(value)))
        keys = [key for key, _ in entries]
        if None in keys:
            raise EncodeError(f"takes maps without None as a key{_in_field(path)}")
        if len(set(keys)) < len(keys):
            raise _twice_error(path, max(keys, key=keys.count))
        found.append(entries)
    return found


def _split_lists(
    values: Sequence[Any], type_: pa.DataType, path: str
) -> tuple[list[Collection[Any]], list[np.ndarray[Any, Any]]]:
    """Return the lists and the arrays among values; lists of arrays of objects are lists."""
    kinds = set(map(type, values))
    if kinds <= {list, tuple, type(None)}:
        return [value for value in values if value is not None], []
    lists: list[Collection[Any]] = []
    arrays = []
    for value in values:
        if isinstance(value, np.ma.MaskedArray):
            raise masked_error()
        if isinstance(value, (str, bytes, bytearray, memoryview)):
            raise _type_error(type_, path, example([value], type(value)))
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            continue  # Arrow requires the same type
        if hasattr(value, "__array__"):
            array = np.asarray(value)
            if array.dtype != object:
                arrays.append(array)
            elif array.ndim:
                lists.append(array.tolist())
        elif isinstance(value, Collection) and not isinstance(value, dict):
            lists.append(value)
    return lists, arrays


def check_array_type(found: pa.DataType, type_: pa.DataType) -> None:
    """Refuse Arrow arrays whose cast would convert values at some depth, or drop fields.

    Raises:
        EncodeError: If values of the type `found` are not values of `type_`.
    """
    _check_type(plain(found), type_, "")


def check_cast(found: pa.Array, array: pa.Array, path: str = "") -> None:
    """Refuse a cast of an Arrow array after which finite numbers at some depth are infinite.

    Raises:
        EncodeError: If there are any; see `check_infinite`.
    """
    if isinstance(found, pa.ExtensionArray):
        found = found.storage
    if isinstance(found, pa.DictionaryArray):
        found = found.dictionary_decode()
    found, array = (entries_of(a) if isinstance(a, pa.MapArray) else a for a in (found, array))
    if pa.types.is_struct(array.type):
        fields = dict(zip([field.name for field in array.type], array.flatten()))
        for field, before in zip(found.type, found.flatten()):
            check_cast(before, fields[field.name], _join(path, field.name))
    elif _is_list(array.type):
        check_cast(found.flatten(), array.flatten(), path)
    elif array.type in NARROW_FLOATS:
        check_infinite(array, found, _in_field(path))


def _check_type(found: pa.DataType, type_: pa.DataType, path: str) -> None:
    of = pa.types
    # Arrow casts a map to a list of its entries.
    found, type_ = (entries_type(t) if of.is_map(t) else t for t in (found, type_))
    if of.is_struct(type_) and of.is_struct(found):
        types = {field.name: field.type for field in type_}
        surplus = {field.name for field in found} - types.keys()
        if surplus:
            raise _surplus_error(type_, surplus)
        for field in found:
            _check_type(field.type, types[field.name], _join(path, field.name))
    elif _is_list(type_) and hasattr(found, "value_type"):
        _check_type(found.value_type, type_.value_type, path)
    elif not of.is_null(found) and not takes_arrays(found, type_):
        raise _type_error(type_, path, f"an array of {found}")


def check_keys(array: pa.Array, path: str = "") -> None:
    """Refuse an Arrow array with a key twice in a map, at any depth, which a dict cannot have.

    Raises:
        EncodeError: If there is one.
    """
    of = pa.types
    if not contains_map(array.type):
        return
    if of.is_struct(array.type):
        for field, inner in zip(array.type, array.flatten()):
            check_keys(inner, _join(path, field.name))
    elif of.is_map(array.type):
        lists = entries_of(array)
        keys, items = lists.flatten().flatten()
        rows = pc.list_parent_indices(lists)
        counts = (
            pa.table({"row": rows, "key": keys})
            .group_by(["row", "key"])
            .aggregate([([], "count_all")])
        )
        if len(counts) < len(keys):
            at = pc.index(pc.greater(counts["count_all"], 1), value=True).as_py()
            raise _twice_error(path, counts["key"][at].as_py())
        check_keys(items, _join(path, "value"))
    else:
        check_keys(array.flatten(), path)


@lru_cache(1024)
def contains_map(type_: pa.DataType) -> bool:
    """Return whether a type is a map, or has one at some depth."""
    if pa.types.is_map(type_):
        return True
    fields = [type_.field(number) for number in range(type_.num_fields)]
    return any(contains_map(field.type) for field in fields)


def as_pairs(value: Any, type_: pa.DataType) -> Any:
    """Return a checked value with pairs in place of the dicts of maps, as all versions of Arrow take them."""
    of = pa.types
    if value is None or isinstance(value, (pa.Scalar, pa.Array)) or not contains_map(type_):
        return value
    if of.is_map(type_):
        entries = value.items() if isinstance(value, Mapping) else value
        return [(key, as_pairs(item, type_.item_type)) for key, item in entries]
    if of.is_struct(type_):
        names = [field.name for field in type_]
        [record] = _records([value], names) or [{}]
        return {n: as_pairs(record[n], type_.field(n).type) for n in names if n in record}
    return [as_pairs(item, type_.value_type) for item in value]


def as_entries(value: Any) -> list[tuple[Any, Any]] | None:
    """Return a list of pairs, which stands for a map; None if the value is anything else."""
    if not isinstance(value, (list, tuple)):
        return None
    is_list_of_pairs = all(isinstance(entry, tuple) and len(entry) == 2 for entry in value)
    return list(value) if is_list_of_pairs else None


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_))


def _is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_error(type_: pa.DataType, path: str, got: str) -> EncodeTypeError:
    return EncodeTypeError(f"takes values of {spec_of(type_)}{_in_field(path)}, got {got}")


def _in_field(path: str) -> str:
    return f" in the field {path!r}" if path else ""


def _twice_error(path: str, key: Any) -> EncodeError:
    return EncodeError(f"takes maps with each key once{_in_field(path)}, got {key!r:.80} twice")


def _surplus_error(type_: pa.DataType, surplus: set[Any]) -> EncodeError:
    names = sorted(map(str, surplus))
    return EncodeError(f"takes the fields {[field.name for field in type_]}, got {names}, too")


def value_copier(type_: pa.DataType) -> ValueCopier:
    """Return a function that copies a nested value for Arrow and returns its size in bytes.

    The function accepts only plain Python values and raises any exception for others. Structs become tuples.
    """
    of = pa.types
    if of.is_struct(type_):
        return _struct([(field.name, value_copier(field.type)) for field in type_])
    if of.is_list(type_) or of.is_fixed_size_list(type_):
        return _list(type_, value_copier(type_.value_type))
    if of.is_map(type_):
        return _map(value_copier(type_.key_type), value_copier(type_.item_type))
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


def _map(copy_key: ValueCopier, copy_item: ValueCopier) -> ValueCopier:
    def copy_map(value: Any) -> tuple[Any, int]:
        if value is None:
            return None, HEAD
        entries = value.items() if type(value) is dict else as_entries(value)
        if (
            entries is None
            or None in (keys := {key for key, _ in entries})
            or len(keys) < len(entries)
        ):
            raise TypeError
        copies, total = [], HEAD
        for key, item in entries:
            (key_copy, key_size), (item_copy, item_size) = copy_key(key), copy_item(item)
            copies.append((key_copy, item_copy))
            total += key_size + item_size
        return copies, total

    return copy_map


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
    kind: Any = float if pa.types.is_floating(type_) else bool
    dtype = np.dtype(f"f{width}") if type_ in NARROW_FLOATS else None
    # Larger numbers may be rounded up to infinity; they are checked.
    limit = inf if dtype is None else float(np.finfo(dtype).max)

    def copy_number(value: Any) -> tuple[Any, int]:
        if value is None or (type(value) is kind and not limit < abs(value) < inf):
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
