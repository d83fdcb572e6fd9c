"""What comes with the head of a shard."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamplug.fetch.spans import coalesced, located
from streamplug.types import Bytes1D, Int64

_NONE, _NO_BYTES = np.empty((0, 2), np.int64), np.empty(0, np.uint8)


class Early:
    """Bytes of a shard that came with its head.

    Attributes:
        spans: Where in the file they lie, shape ``[n, 2]``; ascending and apart.
        data: They themselves, back to back.
        guessed: Whether samples were hoped to be among them.
    """

    __slots__ = ("data", "guessed", "spans")

    def __init__(
        self, spans: Int64 = _NONE, data: Bytes1D = _NO_BYTES, *, guessed: bool = False
    ) -> None:
        self.spans, self.data, self.guessed = spans, data, guessed

    def has(self, ranges: Int64) -> NDArray[np.bool_]:
        """Say of each range of the file, shape ``[n, 2]``, whether it is there."""
        return located(ranges, self.spans) >= 0

    def kept(self, ranges: Int64) -> tuple[Bytes1D, Int64]:
        """Return bytes that hold ranges which are there, and not much else; and where each begins."""
        if not len(ranges):
            return _NO_BYTES, np.empty(0, np.int64)
        spans, starts = coalesced(ranges, 0)
        wanted = int((spans[:, 1] - spans[:, 0]).sum())
        if 2 * wanted >= len(self.data):
            return self.data, located(ranges, self.spans)
        places = located(spans, self.spans).tolist()
        lengths = (spans[:, 1] - spans[:, 0]).tolist()
        parts = [self.data[at : at + length] for at, length in zip(places, lengths)]
        return np.concatenate(parts), starts
