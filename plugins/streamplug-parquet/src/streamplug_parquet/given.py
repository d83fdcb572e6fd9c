"""What writers are given, as arrays of Arrow: of the type asked for, and no value bent to fit it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamplug.errors import EncodeError, EncodeTypeError

_TAKEN = {
    "bool": {"bool"},
    "int": {"int"},
    "float": {"float", "int"},
    "text": {"text"},
    "bytes": {"bytes"},
    "decimal": {"decimal", "int"},
}


def strict(values: Any, type_: pa.DataType) -> pa.Array:
    """Return values of a type that has no others in it.

    Arrow by itself takes 1.0 for an integer, and bytes for text.

    Args:
        values: A list, an array of NumPy with one axis, or an array of Arrow.
        type_: What to make of them.

    Raises:
        EncodeError: If they are others.
    """
    try:
        found = arrow_array(values)
        if not pa.types.is_null(found.type):
            wanted = _family(type_)
            if _family(found.type) not in _TAKEN.get(wanted, {wanted}):
                raise EncodeTypeError(f"takes values of {type_}, got {found.type}: {_first(values)}")
            if found.type != type_:
                found = found.cast(type_)
        elif len(found):
            raise EncodeTypeError(f"takes values of {type_}, got None")
        else:
            found = pa.array([], type_)
    except EncodeError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise EncodeTypeError(f"takes values of {type_}, got {_first(values)}: {error}") from error
    if found.null_count:
        raise EncodeTypeError(
            f"takes no None; the encoding of a column that may have it ends with a question mark: {type_}?"
        )
    return found


def arrow_array(values: Any) -> pa.Array:
    """Return values as one array of Arrow, of the type that they have."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = values.tolist()
    found = values if isinstance(values, pa.Array) else pa.array(values)
    if isinstance(found, pa.ChunkedArray):  # of text beyond 2 GiB
        found = pa.concat_arrays(found.chunks)
    while isinstance(found, pa.ExtensionArray):
        found = found.storage
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def stacked(values: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return arrays of one shape as one array.

    Raises:
        EncodeError: If they have others.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = _flat(arrow_array(values), shape)
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise EncodeError(f"takes arrays of shape {list(shape)}: {error}") from error
    if found.shape[1:] != shape and not (found.size == 0 and len(found) == 0):
        raise EncodeError(f"takes arrays of shape {list(shape)}, got {list(found.shape[1:])}")
    return found.reshape(len(found), *shape)


def _flat(array: pa.Array, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the numbers in lists of one size."""
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
    """Return which of some values are not None: bool, shape ``[n]``."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types
    if isinstance(values, np.ndarray) and values.dtype != object:
        return np.ones(len(values), np.bool_)
    return np.fromiter((value is not None for value in values), np.bool_, len(values))


def only(values: Any, which: np.ndarray[Any, Any]) -> Any:
    """Return some of the values, those that a mask says."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.filter(pa.array(which))
    if isinstance(values, np.ndarray):
        return values[which]
    return [value for value, wanted in zip(values, which.tolist()) if wanted]


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


def _first(values: Any) -> str:
    return ", ".join(f"{type(value).__name__} {value!r:.80}" for value in list(values[:1]))
