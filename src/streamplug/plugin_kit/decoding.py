"""Decoding of a column's values, with errors that name the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamplug.errors import DecodeError
from streamplug.interfaces.shard import Column
from streamplug.types import Bytes1D, ColumnValues, Int64


def decoded(
    column: Column,
    rows: Int64,
    data: Bytes1D,
    starts: Int64,
    sizes: Int64,
    *,
    where: Callable[[int], str] | None = None,
) -> ColumnValues:
    """Decode values of a column that lie in a buffer.

    Args:
        column: Which.
        rows: The samples that they are of, shape ``[n]``.
        data: uint8, shape ``[total]``; read only.
        starts: Where each value begins, shape ``[n]``.
        sizes: How many bytes each has, shape ``[n]``.
        where: Says what errors call the value of a sample; None for its number, and the column.

    Returns:
        What `Encoding.decode_batch` does.

    Raises:
        DecodeError: If one cannot be decoded; names it.
    """
    encoding = column.encoding
    try:
        if encoding.size is not None and (sizes != encoding.size).any():
            raise DecodeError(f"values have {encoding.size} bytes each")
        return encoding.decode_batch(data, starts, sizes)
    except Exception as error:
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        ends = (starts + sizes).tolist()
        values = (view[start:end] for start, end in zip(starts.tolist(), ends))
        raise decode_error(column, rows, values, error, where=where) from error


def decode_error(
    column: Column,
    rows: Int64,
    values: Iterable[memoryview],
    error: BaseException | None,
    *,
    where: Callable[[int], str] | None = None,
) -> DecodeError:
    """Return the error for values that cannot be decoded together: that of the first to blame, if any.

    Args:
        column: Which.
        rows: The samples that they are of, shape ``[n]``.
        values: The bytes of each.
        error: What decoding them together has raised.
        where: As for `decoded`.
    """
    size = column.encoding.size
    for row, value in zip(rows.tolist(), values):
        try:
            if size is not None and size != len(value):
                raise DecodeError(f"a value has {size} bytes, this one has {len(value)}")
            column.encoding.decode(value)
        except Exception as single:  # noqa: BLE001 - whatever it raises, this is the one
            named = f"sample {row}, column {column.name!r}" if where is None else where(row)
            return undecodable_error(named, single)
    return DecodeError(f"column {column.name!r}: {type(error).__name__}: {error}")


def undecodable_error(where: str, error: Exception) -> DecodeError:
    """Return the error for a value that cannot be decoded; `where` names its sample and column."""
    reason = str(error) if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
    return DecodeError(f"{where}: {reason}")
