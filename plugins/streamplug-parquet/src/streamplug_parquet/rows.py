"""Samples as rows of bytes, as a writer collects them, and as columns again for the file.

A row has a head of the same size as all others, and behind it the values of variable size. In the head is,
for each column, the value, or its size; before it, if it may be None, a byte that says whether there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError, StreamplugError
from streamplug.interfaces import Column, Rows
from streamplug.interfaces.encoding import slices, windows
from streamplug.interfaces.given import check_names, count_of
from streamplug.types import Buffer, Bytes1D, Int64
from streamplug_parquet.given import only, present
from streamplug_parquet.row_code import row_function
from streamplug_parquet.values import Value

_LARGE = 1 << 14
"""Bytes of a row from which on its pieces are not copied to one place."""


class RowLayout:
    """How samples of some columns are laid out as rows.

    Attributes:
        head_size: Bytes of the head of a row.
        parts: Returns the row of a sample in pieces, and its size; raises `EncodeError`.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        """Lay out these columns.

        Raises:
            ConfigError: If one is of an encoding of another format.
        """
        self._columns = [(column.name, _value_of(column)) for column in columns]
        self._names = {name for name, _ in self._columns}
        fields: list[tuple[str, Any]] = []
        for number, (_, value) in enumerate(self._columns):
            if value.nullable:
                fields.append((f"given{number}", np.uint8))
            fields.append((f"value{number}", value.item if value.width is not None else "<u4"))
        self._head = np.dtype(fields)
        self.head_size = self._head.itemsize
        self.parts = row_function(self._columns, self._with_care, _LARGE)

    # -- samples to rows --------------------------------------------------------------

    def _with_care(self, sample: Mapping[str, Any]) -> tuple[Sequence[Buffer], int]:
        """Do what `parts` does, whatever the sample is.

        Raises:
            EncodeError: If it has other columns, or a value cannot be stored.
        """
        check_names(sample, self._names)
        head: list[bytes] = []
        pieces: list[Buffer] = [b""]
        for name, value in self._columns:
            given = sample[name]
            if value.nullable:
                head.append(b"\0" if given is None else b"\1")
            try:
                body = b"" if given is None and value.nullable else value.encode(given)
            except Exception as error:  # whatever an encoding raises
                raise _refused(name, error) from error
            if value.width is None:
                head.append(len(body).to_bytes(4, "little"))
                pieces.append(body)
            else:
                head.append(body or bytes(value.width))
        pieces[0] = b"".join(head)
        return pieces, sum(map(len, pieces))

    def batch(self, columns: Mapping[str, Any]) -> tuple[Rows, Int64]:
        """Return the rows of many samples, and the size of each.

        Raises:
            EncodeError: As for `parts`, or if the columns differ in length.
        """
        count = count_of(columns, self._names)
        heads = np.zeros(count, self._head)
        sizes = np.full(count, self.head_size, np.int64)
        bodies: list[Sequence[Buffer]] = []
        for number, (name, value) in enumerate(self._columns):
            try:
                body = self._put(heads, number, value, columns[name])
            except Exception as error:  # whatever an encoding raises
                raise _refused(name, error) from error
            if body is not None:
                bodies.append(body)
                sizes += heads[f"value{number}"]
        if not bodies:
            return heads.tobytes(), sizes
        flat = memoryview(heads.tobytes())
        cut = [flat[at : at + self.head_size] for at in range(0, len(flat), self.head_size)]
        rows = zip(cut, *bodies)
        if sizes.sum() > _LARGE * count:
            return list(rows), sizes
        return b"".join(chain.from_iterable(rows)), sizes

    def _put(
        self, heads: NDArray[Any], number: int, value: Value, given: Any
    ) -> Sequence[Buffer] | None:
        """Put the values of a column into heads of rows; return the bodies of those of variable size."""
        field, which = f"value{number}", None
        if value.nullable:
            which = present(given)
            heads[f"given{number}"] = which
            given = only(given, which)
        encoded = value.encode_batch(given)
        if value.width is not None:
            numbers = np.empty(0, value.item)
            if len(encoded):
                numbers = np.frombuffer(encoded, value.item)  # type: ignore[arg-type]  # an array is a buffer
            heads[field][... if which is None else which] = numbers
            return None
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        if lengths.max(initial=0) >= 1 << 31:
            raise EncodeError("a value of 2 GiB or more, which Parquet cannot hold")
        heads[field][... if which is None else which] = lengths
        if which is None:
            return encoded  # type: ignore[return-value]  # a list
        bodies = iter(encoded)
        return [next(bodies) if has else b"" for has in which.tolist()]

    # -- rows to columns -----------------------------------------------------------------

    def arrays(self, data: Bytes1D, sizes: Int64) -> list[pa.Array]:
        """Return the columns of rows that lie back to back.

        Args:
            data: The rows, uint8.
            sizes: Bytes of each, shape ``[n]``.
        """
        starts = np.cumsum(sizes) - sizes
        heads = windows(data, self._head)[starts] if len(sizes) else np.empty(0, self._head)
        places = starts + self.head_size
        found = []
        for number, (_, value) in enumerate(self._columns):
            given = heads[f"given{number}"].astype(np.bool_) if value.nullable else None
            bodies: Any = heads[f"value{number}"]
            lengths = sizes
            if value.width is None:
                lengths = bodies.astype(np.int64)
                bodies = b"".join(slices(data, places, lengths))
                places = places + lengths
            found.append(value.array(bodies, lengths, given))
        return found


def groups_of(sizes: Int64, rows: int, size: int) -> Iterator[slice]:
    """Yield which samples belong together: at most so many, and of so many bytes if they are several."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + size, side="right"))
        stop = min(max(stop, first + 1), first + rows)
        yield slice(first, stop)
        first = stop


def _value_of(column: Column) -> Value:
    if not isinstance(column.encoding, Value):
        raise ConfigError(f"column {column.name!r}: {column.spec!r} is not a type of Arrow")
    return column.encoding


def _refused(name: str, error: Exception) -> StreamplugError:
    if isinstance(error, EncodeError):
        return type(error)(f"column {name!r}: {error}")
    if isinstance(error, ConfigError):
        return ConfigError(f"column {name!r}: {error}")
    return EncodeTypeError(f"column {name!r}: {type(error).__name__}: {error}")
