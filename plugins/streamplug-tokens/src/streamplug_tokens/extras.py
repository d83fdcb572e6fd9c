"""What rows have besides their tokens: which documents these are of, and where in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.types import Int64
from streamplug_tokens.rows import Pieces


class Extras:
    """The extras of some rows."""

    def __init__(self, pieces: Pieces, at: Int64, count: int, width: int) -> None:
        """Look at rows.

        Args:
            pieces: What they are made of.
            at: Where among the tokens of all rows each piece begins.
            count: How many rows.
            width: Tokens of each.
        """
        self._shape = count, width
        self._filled = np.bincount(pieces.row, pieces.size, count).astype(np.int64)
        column = at - pieces.row * width
        # What is left of a row counts as one more piece.
        short = np.flatnonzero(self._filled < width)
        behind = np.searchsorted(pieces.row, short, side="right")
        self._sizes = np.insert(pieces.size, behind, width - self._filled[short])
        self._documents = np.insert(pieces.document, behind, -1)
        self._columns = np.insert(column, behind, self._filled[short]).astype(np.int32)

    def documents(self) -> Int64:
        """Return the document of each token, -1 for padding; shape ``[count, width]``."""
        return np.repeat(self._documents, self._sizes).reshape(self._shape)

    def positions(self) -> NDArray[np.int32]:
        """Return the place of each token in its piece; shape ``[count, width]``."""
        begins = np.repeat(self._columns, self._sizes).reshape(self._shape)
        return np.subtract(np.arange(self._shape[1], dtype=np.int32), begins, out=begins)

    def follows(self, positions: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Say of each token whether the one before is of the same document; not of padding."""
        found: NDArray[np.bool_] = positions != 0
        if (self._filled < self._shape[1]).any():
            found &= np.arange(self._shape[1]) < self._filled[:, None]
        return found


def following(values: NDArray[Any], length: int, rest: object) -> NDArray[Any]:
    """Return what comes after each of the first `length` of each row; `rest` behind the last."""
    if values.shape[1] > length:
        return values[:, 1:]
    after = np.empty_like(values)
    after[:, :-1], after[:, -1:] = values[:, 1:], rest
    return after
