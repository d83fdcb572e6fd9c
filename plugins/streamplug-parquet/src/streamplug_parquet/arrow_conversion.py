"""Conversion of written values to Arrow arrays, without implicit casts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streamplug.errors import EncodeError, EncodeTypeError
from streamplug.plugin_kit import short_repr
from streamplug_parquet.types import spec_of

MAX_OFFSET = (1 << 31) - 1
"""Maximum bytes, or items, of an Arrow array with 32-bit offsets."""

NARROW_FLOATS = (pa.float16(), pa.float32())
"""Types in which finite numbers of others may become infinite."""

_TAKEN = {
    "bool": {"bool"},
    "int": {"int"},
    "float": {"float", "int"},
    "text": {"text"},
    "bytes": {"bytes"},
    "decimal": {"decimal", "int"},
    "date32": {"date32", "date64", "timestamp"},
    "date64": {"date32", "date64", "timestamp"},
    "timestamp": {"timestamp", "date32", "date64"},
}
_INSTANCES: dict[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_),
    "int": (int, np.integer),
    "float": (int, float, np.integer, np.floating),
    "text": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "decimal": (Decimal, int),
    "date32": (date, np.datetime64),
    "date64": (date, np.datetime64),
    "timestamp": (date, np.datetime64),
    "duration": (timedelta, np.timedelta64),
}
"""Types accepted for each family of types, in Arrow arrays and as single values."""

TIME_TYPES = {"M": _INSTANCES["timestamp"], "m": _INSTANCES["duration"]}
"""Types of times by the kind of their dtype; NaT of pandas is a date, too."""


def strict(
    values: Any,
    type_: pa.DataType,
    *,
    nullable: bool = False,
    list_type: pa.DataType | None = None,
) -> Any:
    """Return values as an array of a type; refuse values of other types.

    Arrow itself would convert 1.0 to an integer, and bytes to text.

    Args:
        values: A list, a one-dimensional NumPy array, or an Arrow array.
        type_: Type of the result.
        nullable: Whether values may be None.
        list_type: Type of the lists that the values are items of, for errors; None for single values.

    Returns:
        An array, chunked if it has 2 GiB or more; it shares memory only with Arrow arrays.

    Raises:
        EncodeError: If a value has another type.
    """
    try:
        if isinstance(values, (list, tuple)):
            array = _of_list(values, type_, nullable=nullable, list_type=list_type)
        else:
            array = _of_array(arrow_array(values), type_)
    except EncodeError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _other(values, type_, error) from error
    check_infinite(array, values)
    if array.null_count and not nullable:
        raise _none_error(type_, list_type)
    return array


def _none_error(type_: pa.DataType, list_type: pa.DataType | None) -> EncodeTypeError:
    """Return the error for None among values, see `strict`."""
    if list_type is not None:
        return EncodeTypeError(
            f"takes no None inside of {spec_of(list_type)}; write another value in its place, such as 0, "
            "NaN or NaT"
        )
    return EncodeTypeError(
        "takes no None; the encoding of a column that may have it ends with a question mark: "
        f"{spec_of(type_)}?"
    )


def check_infinite(array: Any, values: Any, where: str = "") -> None:
    """Refuse finite numbers that have become infinite, as they do not fit float16 or float32.

    Args:
        array: Arrow array of the converted numbers.
        values: The numbers before, a sequence or an array; None stays None.
        where: Name of their place, for errors.

    Raises:
        EncodeError: If there are any.
    """
    if array.type not in NARROW_FLOATS or getattr(values, "type", 0) == array.type:
        return
    for place in np.flatnonzero(np.isinf(array.to_numpy(zero_copy_only=False))).tolist():
        value = values[place]
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        if not (isinstance(value, (float, np.floating)) and np.isinf(value)):
            raise EncodeError(
                f"takes numbers that fit {array.type}{where}, or infinities, got {short_repr(value)}; "
                "clip it, or take a larger type"
            )


def _other(values: Any, type_: pa.DataType, error: Exception) -> EncodeTypeError:
    """Return an error that names the first value of another type."""
    for value in values if isinstance(values, (list, tuple)) else ():
        try:
            pa.array([value], type_)
        except Exception as single:  # noqa: BLE001 - whatever it is, this is the one
            return EncodeTypeError(f"takes values of {type_}, got {short_repr(value)}: {single}")
    return EncodeTypeError(f"takes values of {type_}, got {list(values[:1])!r:.80}: {error}")


def _of_list(
    values: Sequence[Any], type_: pa.DataType, *, nullable: bool, list_type: pa.DataType | None
) -> Any:
    kinds = set(map(type, values))
    if type(None) in kinds and not nullable:
        raise _none_error(type_, list_type)
    kinds.discard(type(None))
    for kind in kinds:
        if not takes_instances(kind, type_):
            raise EncodeTypeError(f"takes values of {type_}, got {example(values, kind)}")
    _check_precision(values, kinds, type_)
    for kind in kinds & {np.datetime64, np.timedelta64}:
        # NumPy deprecates to convert NaT without a unit.
        some = next(value for value in values if type(value) is kind)
        times = np.array([some if value is None else value for value in values])
        is_none = np.isnat(times) | [value is None for value in values]
        return _of_array(pa.array(times, mask=is_none), type_)
    return pa.array(values, type_)


def _of_array(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if not takes_arrays(array.type, type_):
        raise EncodeTypeError(f"takes values of {type_}, got an array of {array.type}")
    if array.type == type_:
        return array
    cast = array.cast(type_)
    # Arrow's casts of other times raise an error for parts that are lost.
    if (
        pa.types.is_date(type_)
        and pa.types.is_timestamp(array.type)
        and not cast.cast(array.type).equals(array)
    ):
        raise EncodeError(f"takes values of {type_}, got times of a day; round them to days first")
    return cast


def _check_precision(values: Sequence[Any], kinds: set[type], type_: pa.DataType) -> None:
    """Refuse times of Python and pandas with a fraction of the unit of a type, which Arrow drops."""
    unit = "D" if pa.types.is_date(type_) else getattr(type_, "unit", "ns")
    exact = {datetime, timedelta} if unit == "us" else set()
    times = (kind for kind in kinds - exact if issubclass(kind, (datetime, timedelta)))
    if unit == "ns" or not any(times):
        return
    for value in values:
        if _has_fraction(value, unit):
            raise EncodeError(
                f"takes values of {type_}, got {short_repr(value)}, which is more precise: round it first, "
                "or take a type of a finer unit"
            )


def _has_fraction(value: Any, unit: str) -> bool:
    """Return whether a time has a fraction of a unit: ``D``, ``s``, ``ms`` or ``us``."""
    is_time, is_duration = isinstance(value, datetime), isinstance(value, timedelta)
    if not (is_time or is_duration) or value != value:  # noqa: PLR0124 - only NaT is unequal
        return False
    # Of pandas; types of Python have no such part.
    nanoseconds = getattr(value, "nanosecond" if is_time else "nanoseconds", 0)
    microseconds = value.microsecond if is_time else value.microseconds
    if unit == "D":
        return bool(value.hour or value.minute or value.second or microseconds or nanoseconds)
    return bool(nanoseconds or microseconds % {"s": 1_000_000, "ms": 1_000, "us": 1}[unit])


def takes_instances(kind: type, type_: pa.DataType) -> bool:
    """Return whether single values of a Python or NumPy type are values of an Arrow type."""
    family = _family(type_)
    return issubclass(kind, _INSTANCES.get(family, ())) and (kind is not bool or family == "bool")


def takes_arrays(found: pa.DataType, type_: pa.DataType) -> bool:
    """Return whether Arrow arrays of one type may be cast to another."""
    family = _family(type_)
    return _family(found) in _TAKEN.get(family, {family})


def arrow_array(values: Any) -> pa.Array:
    """Return values as one Arrow array with the type that Arrow infers."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = values.tolist()
    if isinstance(values, np.ndarray):
        values = values.copy()  # the caller may modify the values later
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):  # text of more than 2 GiB
        array = pa.concat_arrays(array.chunks)
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def masked_error() -> EncodeTypeError:
    """Return the error for a masked array, whose hidden values would be stored."""
    return EncodeTypeError(
        "takes arrays without a mask, got a MaskedArray; call its filled() first"
    )


def nat_error(type_: pa.DataType) -> EncodeTypeError:
    """Return the error for NaT in an array of fixed shape: Parquet would refuse the whole shard."""
    if not pa.types.is_fixed_size_list(type_):
        return EncodeTypeError(
            f"takes no array of NaT; write np.datetime64('NaT', unit) in {type_}?"
        )
    return EncodeTypeError(
        f"takes no NaT in arrays of fixed shape; list<{spec_of(type_.value_type)}> takes it"
    )


def refuse_nat(array: pa.Array, type_: pa.DataType) -> None:
    """Raise `nat_error` if an array of fixed-size lists has a null in a list."""
    while pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    if array.null_count:
        raise nat_error(type_)


def stacked(values: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Stack arrays of one shape.

    Raises:
        EncodeError: If an array has another shape.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = _flat(arrow_array(values), shape)
    if isinstance(values, list) and any(
        issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, values))
    ):
        raise masked_error()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise EncodeError(f"takes arrays of shape {list(shape)}: {error}") from error
    if array.shape[1:] != shape and not (array.size == 0 and len(array) == 0):
        raise EncodeError(f"takes arrays of shape {list(shape)}, got {list(array.shape[1:])}")
    return array.reshape(len(array), *shape)


def _flat(array: pa.Array, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the numbers of fixed-size lists."""
    count = len(array)
    for size in shape:
        if array.null_count:
            raise EncodeTypeError("takes no None")
        if not pa.types.is_fixed_size_list(array.type):
            lengths = np.asarray(array.value_lengths())
            if (lengths != size).any():
                raise EncodeError(f"takes arrays of shape {list(shape)}, some have another")
        array = array.flatten()
    if array.null_count:
        raise EncodeTypeError("takes no None")
    numbers: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return numbers.reshape(count, *shape)


def present(values: Any) -> np.ndarray[Any, Any]:
    """Return the mask of values that are not None: bool, shape ``[n]``."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types
    if isinstance(values, np.ndarray) and values.dtype != object:
        return np.ones(len(values), np.bool_)
    return np.fromiter((value is not None for value in values), np.bool_, len(values))


def only(values: Any, which: np.ndarray[Any, Any]) -> Any:
    """Return the values that a mask selects."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.filter(pa.array(which))
    if isinstance(values, np.ndarray):
        return values[which]
    return [value for value, is_chosen in zip(values, which.tolist()) if is_chosen]


def _family(type_: pa.DataType) -> str:
    of = pa.types
    if of.is_boolean(type_):
        return "bool"
    if of.is_integer(type_):
        return "int"
    if of.is_floating(type_):
        return "float"
    if of.is_string(type_) or of.is_large_string(type_):
        return "text"
    if of.is_binary(type_) or of.is_large_binary(type_) or of.is_fixed_size_binary(type_):
        return "bytes"
    if of.is_decimal(type_):
        return "decimal"
    return str(type_).partition("[")[0]


def example(values: Sequence[Any], kind: type) -> str:
    """Return the first value of a type, for an error."""
    value = next(value for value in values if type(value) is kind)
    return f"{kind.__name__}: {short_repr(value)}"
