"""Conversion of Arrow values to Python values, without importing Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamplug.errors import DataError

Convert = Callable[[Any], Any]


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
