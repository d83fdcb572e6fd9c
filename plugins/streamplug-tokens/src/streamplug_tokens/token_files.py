"""Shards whose samples are tokens back to back in a file, without a header of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Column, Encoding, ShardHeader, ShardReader, VectorColumn
from streamplug.plugin_kit import decode_values, wrong_type_error
from streamplug.types import Bytes1D, ColumnValues, Int64

TOKENS = "tokens"
"""Name of the column of tokens."""

OffsetOf: TypeAlias = Callable[[Int64], Int64]
"""Returns the number of tokens before samples; that of all tokens for the number of samples."""


class Tokens(Encoding, VectorColumn):
    """A one-dimensional array without a header."""

    item: np.dtype[Any]

    def __init__(self, dtype: np.dtype[Any]) -> None:
        """Set the dtype, which is little-endian."""
        self.item = dtype

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, np.ndarray) or value.dtype != self.item:
            raise wrong_type_error("tokens", f"an array of {self.item}", value)
        if value.ndim != 1:
            raise EncodeError(f"tokens have one dimension, got {value.ndim}")
        return value.tobytes()

    def decode(self, data: memoryview) -> NDArray[Any]:
        if len(data) % self.item.itemsize:
            raise DecodeError(f"{len(data)} bytes are no array of {self.item}")
        values: NDArray[Any] = np.frombuffer(data, self.item).copy()
        return values

    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        counts, rest = np.divmod(sizes, dtype.itemsize)
        return np.where(rest == 0, counts, -1)


class TokenHeader(ShardHeader):
    """Locations of the samples of a shard."""

    def __init__(
        self,
        samples: int,
        offset_of: OffsetOf,
        *,
        item_bytes: int,
        begin: int = 0,
        others: Mapping[str, Bytes1D] | None = None,
    ) -> None:
        """Set where samples are.

        Args:
            samples: Number of samples.
            offset_of: Returns the tokens before samples.
            item_bytes: Bytes of a token.
            begin: Offset of the first token in the file.
            others: Values, of fixed size, of the columns that are not in the file.
        """
        self.samples = samples
        self._offset_of, self._item_bytes, self._begin = offset_of, item_bytes, begin
        self._others = others or {}

    def byte_ranges(self, rows: Int64) -> Int64:
        offsets = np.stack([self._offset_of(rows), self._offset_of(rows + 1)], axis=1)
        return self._begin + offsets.astype(np.int64) * self._item_bytes

    def sizes(self, column: Column) -> Int64 | None:
        if column.name != TOKENS:
            return None
        offsets = self._offset_of(np.arange(self.samples + 1)).astype(np.int64)
        return np.diff(offsets) * self._item_bytes

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        ranges = self.byte_ranges(rows)
        sizes = ranges[:, 1] - ranges[:, 0]
        return [self._take(column, rows, data, starts, sizes) for column in columns]

    def _take(
        self, column: Column, rows: Int64, data: Bytes1D, starts: Int64, sizes: Int64
    ) -> ColumnValues:
        if column.name in self._others:
            sizes = np.full(len(rows), column.encoding.size, np.int64)
            data, starts = self._others[column.name], rows * sizes
        return decode_values(column, rows, data, starts, sizes)


class TokenFileReader(ShardReader):
    """Reads the samples of one shard."""

    def __init__(self, data: Bytes1D, header: TokenHeader) -> None:
        """Read from `data`, by its header."""
        self._data, self._header = data, header

    def __len__(self) -> int:
        return self._header.samples

    def byte_range(self, index: int) -> tuple[int, int]:
        start, stop = self._header.byte_ranges(np.array([index]))[0].tolist()
        return start, stop

    def token_ranges(self, rows: Int64) -> Int64:
        """Return start and end in the file of the tokens of samples, shape ``[n, 2]``."""
        return self._header.byte_ranges(rows)

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._header.byte_ranges(rows)[:, 0]
        return self._header.take(rows, self._data, starts, columns)
