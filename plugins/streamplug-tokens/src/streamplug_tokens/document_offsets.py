"""Offsets of documents in their concatenation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from streamplug.types import Int64


class DocumentOffsets(ABC):
    """Token offsets of documents that are stored one after the other.

    Attributes:
        count: Number of documents.
        total: Number of tokens.
    """

    count: int
    total: int

    @abstractmethod
    def offset_of(self, documents: Int64) -> Int64:
        """Return the offset of the first token of documents; the total for the number `count`."""

    @abstractmethod
    def document_at(self, offsets: Int64) -> Int64:
        """Return the documents that the tokens at some offsets belong to."""


@dataclass(frozen=True, slots=True)
class EqualLengths(DocumentOffsets):
    """Offsets of documents of one length."""

    length: int
    count: int

    @property
    def total(self) -> int:  # type: ignore[override]  # computed, where the base stores it
        """Number of tokens."""
        return self.length * self.count

    def offset_of(self, documents: Int64) -> Int64:
        return documents * self.length

    def document_at(self, offsets: Int64) -> Int64:
        return offsets // max(self.length, 1)


class ListedOffsets(DocumentOffsets):
    """Offsets of documents of any length."""

    def __init__(self, offsets: Int64) -> None:
        """Take the offset of each document and the total, shape ``[count + 1]``."""
        self._offsets = offsets
        self.count, self.total = len(offsets) - 1, int(offsets[-1])

    def offset_of(self, documents: Int64) -> Int64:
        return np.asarray(self._offsets)[documents]

    def document_at(self, offsets: Int64) -> Int64:
        documents: Int64 = np.searchsorted(np.asarray(self._offsets), offsets, side="right") - 1
        return documents
