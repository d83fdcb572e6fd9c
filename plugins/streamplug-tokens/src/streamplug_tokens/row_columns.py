"""Columns of rows besides the tokens: document numbers, positions and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.types import Int64
from streamplug_tokens.row_layout import DocumentSpans


class ExtraColumns:
    """Computes the extra columns of rows, each of shape ``[count, width]``."""

    def __init__(self, spans: DocumentSpans, offsets: Int64, count: int, width: int) -> None:
        """Prepare the columns.

        Args:
            spans: What the rows consist of.
            offsets: Offset of each span in the tokens of all rows.
            count: Number of rows.
            width: Tokens of each row.
        """
        self._shape = count, width
        self._filled = np.bincount(spans.row, spans.size, count).astype(np.int64)
        # The padding of a row is one more span.
        padded = np.flatnonzero(self._filled < width)
        insert_at = np.searchsorted(spans.row, padded, side="right")
        self._sizes = np.insert(spans.size, insert_at, width - self._filled[padded])
        self._documents = np.insert(spans.document, insert_at, -1)
        columns = offsets - spans.row * width
        self._columns = np.insert(columns, insert_at, self._filled[padded]).astype(np.int32)

    def documents(self) -> Int64:
        """Return the document of each token, -1 for padding."""
        return np.repeat(self._documents, self._sizes).reshape(self._shape)

    def positions(self) -> NDArray[np.int32]:
        """Return the position of each token in its span."""
        begins = np.repeat(self._columns, self._sizes).reshape(self._shape)
        return np.subtract(np.arange(self._shape[1], dtype=np.int32), begins, out=begins)

    def mask(self, positions: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return whether the token before each one is of the same document; False for padding."""
        mask: NDArray[np.bool_] = positions != 0
        if (self._filled < self._shape[1]).any():
            mask &= np.arange(self._shape[1]) < self._filled[:, None]
        return mask


def shift_left(values: NDArray[Any], length: int, fill: object) -> NDArray[Any]:
    """Return a copy of the values after the first `length` values of each row; `fill` after the last."""
    if values.shape[1] > length:
        return np.array(values[:, 1:])
    shifted = np.empty_like(values)
    shifted[:, :-1], shifted[:, -1:] = values[:, 1:], fill
    return shifted
