"""Columns of vectors, whose encoded values end with the items of a one-dimensional array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces.encoding import GatherBuffer
from streamplug.types import Int64


class VectorColumn(ABC):
    """A mixin of encodings whose values end with the items of a one-dimensional array.

    Their items can be counted and partly read without reading the whole value.

    Attributes:
        item: Dtype of the items if it is fixed, else None; the reader then specifies it.
    """

    item: np.dtype[Any] | None = None

    @abstractmethod
    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        """Return the number of items of values, from their sizes.

        Args:
            sizes: Bytes of each encoded value, shape ``[n]``.
            dtype: Dtype of the items.

        Returns:
            Items of each, shape ``[n]``; -1 where no vector has that size.
        """

    def are_vectors(
        self, buffer: GatherBuffer, starts: Int64, lengths: Int64, dtype: np.dtype[Any]
    ) -> NDArray[np.bool_]:
        """Return whether each value is a vector of the given length; the default is True for all.

        Args:
            buffer: Buffer of the values.
            starts: Offset of each value, shape ``[n]``.
            lengths: Items of each value, as `lengths` returned them, shape ``[n]``.
            dtype: Dtype of the items.
        """
        return np.ones(len(starts), bool)
