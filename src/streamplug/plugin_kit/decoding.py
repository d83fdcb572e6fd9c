"""Decoding of many values of a column, with errors that name the sample; for authors of formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError, DecodeError, StorageError, StreamplugError, add_note
from streamplug.interfaces import Column, GatherBuffer
from streamplug.types import Bytes1D, ColumnValues, Int64


def decode_values(
    column: Column,
    rows: Int64,
    data: Bytes1D,
    starts: Int64,
    sizes: Int64,
    *,
    where: Callable[[int], str] | None = None,
) -> ColumnValues:
    """Decode values of a column that lie in one buffer, as `Encoding.decode_batch` does.

    Args:
        column: Column of the values.
        rows: Sample number of each value, shape ``[n]``.
        data: uint8, shape ``[total]``; read only.
        starts: Offset of each value, shape ``[n]``.
        sizes: Bytes of each value, shape ``[n]``.
        where: Returns the name of a sample's value for errors; default is sample number and column.

    Raises:
        DecodeError: If a value cannot be decoded; the message names it.
    """
    encoding = column.encoding
    try:
        if encoding.size is not None and (sizes != encoding.size).any():
            raise DecodeError(f"values have {encoding.size} bytes each")
        return encoding.decode_batch(GatherBuffer(data), starts, sizes)
    except Exception as error:
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        ends = (starts + sizes).tolist()
        values = (view[start:end] for start, end in zip(starts.tolist(), ends))
        raise decode_error(column, rows, values, error, where=where) from error


def decode_error(
    column: Column,
    rows: Int64,
    values: Iterable[Any],
    error: BaseException | None,
    *,
    where: Callable[[int], str] | None = None,
) -> DecodeError:
    """Return the error for a failed batch: that of the first value that fails by itself, if any.

    Args:
        column: Column of the values.
        rows: Sample number of each value, shape ``[n]``.
        values: Bytes of each value, or a `StoredRange`.
        error: Error of decoding the batch.
        where: As for `decoded`.

    Raises:
        Exception: An error that is not of the data; see `undecodable_error`.
    """
    size = column.encoding.size
    for row, value in zip(rows.tolist(), values):
        try:
            if size is not None and size != len(value):
                raise DecodeError(f"a value has {size} bytes, this one has {len(value)}")
            column.encoding.decode(value)
        except StorageError:  # of a range that cannot be fetched
            raise
        except Exception as single:  # noqa: BLE001 - decoders can raise anything
            named = f"sample {row}, column {column.name!r}" if where is None else where(row)
            return undecodable_error(named, single)
    _raise_unless_of_data(f"column {column.name!r}", error)
    return DecodeError(f"column {column.name!r}: {type(error).__name__}: {error}")


def undecodable_error(where: str, error: Exception) -> DecodeError:
    """Return the error for a value that cannot be decoded; `where` names its sample and column.

    Raises:
        Exception: `error` itself with a note of `where`, if it is not of the data: a MemoryError, or one of
            options, plugins or the storage. Another copy of the shard, or another sample, would not help.
    """
    _raise_unless_of_data(where, error)
    reason = str(error) if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
    return DecodeError(f"{where}: {reason}")


def _raise_unless_of_data(where: str, error: BaseException | None) -> None:
    if isinstance(error, MemoryError) or (
        isinstance(error, StreamplugError) and not isinstance(error, DataError)
    ):
        add_note(error, f"raised for {where}")
        raise error


def windows(buffer: Bytes1D, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view of the items of `dtype` that start at each byte of a buffer.

    Args:
        buffer: uint8, shape ``[total]``.
        dtype: Dtype of the items, possibly a subarray dtype.

    Returns:
        The items, shape ``[total - itemsize + 1, *dtype.shape]``.
    """
    count = max(len(buffer) - dtype.itemsize + 1, 0)
    item = np.dtype([("item", dtype)]) if dtype.shape else dtype  # NumPy then computes the strides
    items: NDArray[Any] = np.ndarray((count,), item, buffer, strides=(1,))
    return items["item"] if dtype.shape else items
