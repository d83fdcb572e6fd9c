"""Conversion of Arrow values to Python values; Arrow is imported only where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError

Convert = Callable[[Any], Any]

ValueSizes: TypeAlias = "float | NDArray[np.float64]"
"""Bytes of each value, shape ``[n]``, or of every value if all take the same; floats do not overflow."""

_REFERENCE_BYTES, _NUMBER_BYTES, _OBJECT_BYTES = 8, 40, 64
"""Bytes of a reference, and with it of a number, and of text, a list or a dict without its content."""


def maps_as_dicts(type_: Any) -> Convert | None:
    """Return a function that converts the maps in a value to dicts; None if the type contains no maps.

    Arrow's ``to_pylist`` returns lists of pairs instead. The function takes one value of ``to_pylist``,
    and raises `DataError` for duplicate or unhashable keys.
    """
    if hasattr(type_, "key_type"):
        return _of_map(maps_as_dicts(type_.item_type))
    if hasattr(type_, "index_type"):  # a dictionary type
        return maps_as_dicts(type_.value_type)
    if hasattr(type_, "storage_type"):
        return maps_as_dicts(type_.storage_type)
    if hasattr(type_, "value_type"):
        return _of_list(maps_as_dicts(type_.value_type))
    if str(type_).startswith("struct<"):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        inner = {field.name: maps_as_dicts(field.type) for field in fields}
        return _of_struct({name: convert for name, convert in inner.items() if convert is not None})
    return None


def to_python(array: Any) -> list[Any]:
    """Return the values of an Arrow array as a list, with maps as dicts.

    Raises:
        DataError: As for `maps_as_dicts`.
    """
    convert = maps_as_dicts(array.type)
    values: list[Any] = array.to_pylist()
    return values if convert is None else [convert(value) for value in values]


def value_sizes(array: Any) -> ValueSizes:
    """Return about how many bytes the values of a valid Arrow array take as Python objects.

    The bytes of the array do not bound them: an integer becomes an object, a null in a list a reference, and
    entries of dictionaries and views may be repeated.
    """
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        return value_sizes(array.storage)
    if pa.types.is_null(array.type):
        return float(_REFERENCE_BYTES)
    if pa.types.is_dictionary(array.type):
        entries = value_sizes(array.dictionary)
        if isinstance(entries, float):
            return entries
        entries = np.append(entries, _REFERENCE_BYTES)  # the last one is of None
        numbers = array.indices.cast(pa.int64()).fill_null(len(entries) - 1)
        return _floats(entries[numbers.to_numpy()])
    if pa.types.is_run_end_encoded(array.type):
        return _largest(value_sizes(array.values))
    return _nested_sizes(array) if pa.types.is_nested(array.type) else _flat_sizes(array)


def _flat_sizes(array: Any) -> ValueSizes:
    import pyarrow as pa
    import pyarrow.compute as pc

    of, type_ = pa.types, array.type
    if of.is_primitive(type_) or of.is_decimal(type_):
        return float(_NUMBER_BYTES)
    if of.is_fixed_size_binary(type_):
        return float(_OBJECT_BYTES + type_.byte_width)
    if str(type_) in ("string_view", "binary_view"):
        lengths = np.frombuffer(array.buffers()[1], "<i4")[::4]  # of entries of 16 bytes
        return _floats(_OBJECT_BYTES + lengths[array.offset :][: len(array)].astype(np.float64))
    lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return _floats(_OBJECT_BYTES + lengths.astype(np.float64))


def _nested_sizes(array: Any) -> ValueSizes:
    import pyarrow as pa

    of, type_ = pa.types, array.type
    if of.is_map(type_):
        return _list_sizes(array, value_sizes(array.keys) + value_sizes(array.items))
    if of.is_fixed_size_list(type_):
        start, size = array.offset, type_.list_size
        items = value_sizes(array.values[start * size : (start + len(array)) * size])
        if isinstance(items, float):
            return float(_OBJECT_BYTES + size * items)
        return _floats(_OBJECT_BYTES + items.reshape(len(array), size).sum(axis=1))
    if hasattr(type_, "value_type"):
        return _list_sizes(array, value_sizes(array.values))
    fields = [value_sizes(array.field(number)) for number in range(type_.num_fields)]
    if of.is_struct(type_):
        return sum(fields, float(_OBJECT_BYTES * (1 + len(fields))))
    return max(map(_largest, fields), default=0.0)  # a union


def _list_sizes(array: Any, items: ValueSizes) -> ValueSizes:
    offsets = array.offsets.to_numpy()
    if len(offsets) > len(array):
        starts, stops = offsets[:-1], offsets[1:]
    else:  # list views, which may overlap
        starts, stops = offsets, offsets + array.sizes.to_numpy()
    if isinstance(items, float):
        return _floats(_OBJECT_BYTES + (stops - starts) * items)
    ends = np.cumsum(np.append(0.0, items))
    return _floats(_OBJECT_BYTES + ends[stops] - ends[starts])


def _largest(sizes: ValueSizes) -> float:
    return sizes if isinstance(sizes, float) else float(sizes.max(initial=0.0))


def _floats(sizes: Any) -> NDArray[np.float64]:
    return np.asarray(sizes, np.float64)


def _of_map(inner: Convert | None) -> Convert:
    def convert(pairs: Any) -> Any:
        if pairs is None:
            return None
        converted: dict[Any, Any] = {}
        for key, value in pairs:
            try:
                is_duplicate = key in converted
            except TypeError:
                raise DataError(
                    f"a map has the key {key!r:.80}: a {type(key).__name__} cannot be the key of a dict"
                ) from None
            if is_duplicate:
                raise DataError(f"a map has the key {key!r:.80} twice: {pairs!r:.200}")
            converted[key] = value if inner is None else inner(value)
        return converted

    return convert


def _of_list(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda values: None if values is None else [inner(value) for value in values]


def _of_struct(inner: dict[str, Convert]) -> Convert | None:
    if not inner:
        return None

    def convert_struct(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: convert(value[name]) for name, convert in inner.items()}}

    return convert_struct
