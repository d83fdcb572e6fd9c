"""Apportionment: an even interleaving of streams, of which every slot can be asked by itself.

The streams are the leaves of a binary tree, built as Huffman's (1952) from their counts. A node deals
its slots to its two children by rounding: of its first x, the left child has
``(x * left + total // 2) // total``. So how often a stream came before a slot, which stream has a slot,
and where a stream's n-th turn is are each a walk along the tree. Over any stretch from the beginning a
stream's turns differ from its share by less than 1.5, and by at most 1 for up to three streams.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64

LIMIT = 1 << 42
"""Slots of an apportionment are fewer: up to here the arithmetic is exact in 64 bits."""

_LIMB = 20


def scaled(x: Int64, times: Int64, by: Int64, plus: Int64) -> Int64:
    """Return ``(x * times + plus) // by`` exactly, for numbers below `LIMIT`; all of one shape."""
    if not len(x) or int(x.max()) * int(times.max()) < LIMIT << 19:
        found: Int64 = (x * times + plus) // by
        return found
    quotient, rest = np.zeros_like(x), np.zeros_like(x)
    for shift in (2 * _LIMB, _LIMB, 0):
        limb = (x >> shift) & ((1 << _LIMB) - 1)
        value = (rest << _LIMB) + limb * times + (plus if shift == 0 else 0)
        more, rest = np.divmod(value, by)
        quotient = (quotient << _LIMB) + more
    return quotient


class Apportionment:
    """Slots ``[0, total)``, of which stream s has ``counts[s]``.

    Attributes:
        counts: Slots of each stream.
        total: Slots of all.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        """Build the tree.

        Raises:
            ConfigError: If there are no slots, or too many to compute with.
        """
        self.counts, self.total = list(counts), sum(counts)
        if not 0 < self.total < LIMIT:
            raise ConfigError(f"{self.total} samples cannot be dealt; there must be 1 to {LIMIT}")
        # Leaves are the streams, in their order; inner nodes follow, the root is the last.
        sizes, self._parent = list(counts), [-1] * len(counts)
        left, right = [-1] * len(counts), [-1] * len(counts)
        heap = [(size, node) for node, size in enumerate(sizes)]
        heapq.heapify(heap)
        while len(heap) > 1:
            (small, a), (large, b) = heapq.heappop(heap), heapq.heappop(heap)
            node = len(sizes)
            self._parent[a] = self._parent[b] = node
            sizes.append(small + large)
            left.append(b)
            right.append(a)
            self._parent.append(-1)
            heapq.heappush(heap, (small + large, node))
        self._size = np.array(sizes, np.int64)
        self._left, self._right = np.array(left), np.array(right)

    def _to_left(self, node: Int64, slots: Int64) -> Int64:
        total = self._size[node]
        return scaled(slots, self._size[self._left[node]], np.maximum(total, 1), total // 2)

    def turn(self, slots: Int64) -> tuple[Int64, Int64]:
        """Return which stream has each slot, and how many turns that stream had before.

        Args:
            slots: Slots, at least 0, shape ``[n]``; behind the last it starts again, the turns of the
                streams counting on.
        """
        rounds, slots = np.divmod(slots, self.total)
        node = np.full(len(slots), len(self._size) - 1)
        active = np.flatnonzero(self._left[node] >= 0)
        while len(active):
            here, at = node[active], slots[active]
            before = self._to_left(here, at)
            left = self._to_left(here, at + 1) > before
            node[active] = np.where(left, self._left[here], self._right[here])
            slots[active] = np.where(left, before, at - before)
            active = active[self._left[node[active]] >= 0]
        return node, slots + rounds * self._size[node]

    def slot(self, stream: int, turn: int) -> int:
        """Return the slot of a stream's so-many-th turn."""
        rounds, at = divmod(turn, self.counts[stream])
        node = stream
        while (parent := self._parent[node]) >= 0:
            total, size = int(self._size[parent]), int(self._size[node])
            # The first x of the parent's slots of which this child has more than `at`.
            half = total // 2 if node == self._left[parent] else total - 1 - total // 2
            at = ((at + 1) * total - half - 1) // size
            node = parent
        return at + rounds * self.total

    def before(self, slot: int) -> list[int]:
        """Return how many turns each stream has before a slot."""
        rounds, slot = divmod(slot, self.total)
        had = {len(self._size) - 1: slot}
        for node in range(len(self._size) - 1, len(self.counts) - 1, -1):
            left, right = int(self._left[node]), int(self._right[node])
            total, at = int(self._size[node]), had[node]
            had[left] = (at * int(self._size[left]) + total // 2) // max(total, 1)
            had[right] = at - had[left]
        return [had[stream] + rounds * count for stream, count in enumerate(self.counts)]
