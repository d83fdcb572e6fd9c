"""Encodings of vectors: the items of a one-dimensional array that end each encoded value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces.encoding import EncodedBytes
from streamplug.types import Int64


class VectorColumn(ABC):
    """A part of an `Encoding` whose values end with the items of an array, in order, back to back.

    Who knows where a value lies can then count its items without reading it, and read some of them.

    Attributes:
        item: The dtype of the items where all values have one, else None; their reader then says.
    """

    item: np.dtype[Any] | None = None

    @abstractmethod
    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        """Return how many items values of some sizes hold, if they are vectors.

        Args:
            sizes: Bytes of each encoded value, shape ``[n]``.
            dtype: Of the items.

        Returns:
            Items of each, shape ``[n]``; -1 where no vector has that size.
        """

    def are_vectors(
        self, buffer: EncodedBytes, starts: Int64, lengths: Int64, dtype: np.dtype[Any]
    ) -> NDArray[np.bool_]:
        """Say of each value whether it is a vector of so many items; the default is that all are.

        Args:
            buffer: Holds the values, each of a size from which `lengths` told how many items it has.
            starts: Where each begins, shape ``[n]``.
            lengths: Items of each, shape ``[n]``.
            dtype: Of the items.
        """
        return np.ones(len(starts), bool)
