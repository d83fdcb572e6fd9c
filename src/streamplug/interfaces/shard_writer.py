"""Writers of shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from streamplug.types import Buffer, Int64

RowPiece: TypeAlias = Any
"""A part of the buffered rows: bytes, or any object in a columnar format."""

EncodedRows: TypeAlias = "Buffer | list[Sequence[RowPiece]] | ColumnarRows"
"""Immutable encoded rows: back to back in a buffer, each in pieces, or columnar."""


class ColumnarRows(Protocol):
    """Columnar rows, such as an Arrow table; a slice of them is a piece."""

    def __getitem__(self, rows: slice, /) -> RowPiece:
        """Return a slice of the rows."""


class ShardWriter(ABC):
    """Lays out the samples of a data set as bytes, one shard at a time.

    Samples are encoded as rows and buffered until a shard is full. A columnar format may use rows that
    are not bytes: it gets the results of `encode` and `encode_batch` back in `pack` and `assemble`.

    Attributes:
        base_size: Bytes of a shard besides its rows, counted against the size limit.
        row_overhead: Bytes of a row besides its content, counted likewise.
        max_size: Largest file size that a shard can address in bytes; None if unlimited.
    """

    base_size: int
    row_overhead: int
    max_size: int | None = None

    @abstractmethod
    def encode(self, sample: Mapping[str, Any]) -> RowPiece:
        """Return the encoded row of a sample, in one piece.

        Raises:
            EncodeError: If columns are missing or unknown, or a value cannot be stored; the message names
                the column, what it accepts, and what it got.
        """

    def encode_pieces(self, sample: Mapping[str, Any]) -> tuple[Sequence[RowPiece], int]:
        """Return the encoded row of a sample in immutable pieces, and its size.

        Pieces avoid copies of large values. The default returns one piece.

        Raises:
            EncodeError: As for `encode`.
        """
        row = self.encode(sample)
        return (row,), len(row)

    @abstractmethod
    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[EncodedRows, Int64]:
        """Return the encoded rows of many samples, and the size of each row.

        Raises:
            EncodeError: As for `encode`, or if the columns differ in length.
        """

    def pack(self, pieces: Sequence[RowPiece]) -> Sequence[RowPiece]:
        """Return rows in fewer or smaller pieces; the default returns them unchanged.

        Called for all rows before `assemble`, with a few thousand pieces at a time, of samples or of
        batches.
        """
        return pieces

    @abstractmethod
    def assemble(self, parts: Sequence[RowPiece], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        """Return the content of a shard's files by role, as buffers to be written in order.

        Args:
            parts: The rows back to back, in any number of pieces, as returned by `pack`.
            sizes: Bytes of each row, shape ``[samples]``.
        """

    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the keys that this format adds to a shard's index entry; mappings lose their order there."""
