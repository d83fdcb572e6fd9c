"""Writer of the bytes of shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from streamplug.types import Buffer, Int64

RowPiece: TypeAlias = Any
"""A part of the rows that a writer collects: bytes; in a format that stores by column, what it likes."""

EncodedRows: TypeAlias = "Buffer | list[Sequence[RowPiece]] | ColumnarRows"
"""Stored rows, which nobody may change later: back to back in a buffer, each in pieces, or by column."""


class ColumnarRows(Protocol):
    """Rows by column, such as a table of Arrow: a slice of them is a piece."""

    def __getitem__(self, rows: slice, /) -> RowPiece:
        """Return some of the rows."""


class ShardWriter(ABC):
    """Lays out the samples of one data set, one shard at a time, as bytes.

    Samples become rows, which are collected until a shard is full. A format that stores values by column can
    have rows that are no bytes: what `encode` and `encode_batch` give, it gets back in `pack` and `assemble`.

    Attributes:
        base_size: Bytes that each shard has besides its rows, as counted against the size limit.
        row_overhead: The same for each row.
        max_size: Bytes that a shard's file can address; None without a bound.
    """

    base_size: int
    row_overhead: int
    max_size: int | None = None

    @abstractmethod
    def encode(self, sample: Mapping[str, Any]) -> RowPiece:
        """Return the stored row of a sample, in one piece.

        Raises:
            EncodeError: If columns are missing or unknown, or a value cannot be stored; the message
                names the column, what it takes, and what it got.
        """

    def encode_pieces(self, sample: Mapping[str, Any]) -> tuple[Sequence[RowPiece], int]:
        """Return the same in pieces, which nobody may change later, and its size.

        So that large values need not be copied to one place. The default has a single piece.

        Raises:
            EncodeError: As for `encode`.
        """
        row = self.encode(sample)
        return (row,), len(row)

    @abstractmethod
    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[EncodedRows, Int64]:
        """Return the stored rows of many samples, and the size of each row.

        Raises:
            EncodeError: As for `encode`, or if the columns differ in length.
        """

    def pack(self, pieces: Sequence[RowPiece]) -> Sequence[RowPiece]:
        """Return some rows in fewer pieces, or in pieces that take less room; the default leaves them.

        All rows come here before `assemble`, a few thousand pieces at a time: of single samples, or of
        batches.
        """
        return pieces

    @abstractmethod
    def assemble(self, parts: Sequence[RowPiece], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        """Return the content of a shard's files by role, as buffers to be written one by one.

        Args:
            parts: The rows back to back, in any number of pieces, as `pack` gave them.
            sizes: Bytes of each row, shape ``[samples]``.
        """

    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the keys that this format adds to a shard's entry in the index."""
