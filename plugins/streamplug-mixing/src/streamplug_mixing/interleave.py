"""Even interleaving of streams with random access to every slot.

The streams are the leaves of a Huffman tree (1952) of their counts. A node splits its slots between its two
children by rounding: of its first x, the left child has ``(x * left + total // 2) // total``. The turns of a
stream before a slot, the stream of a slot, and the slot of a stream's n-th turn are each found by a walk
along the tree. In any prefix, the turns of a stream differ from its share by less than 1.5, and by at most 1
for up to three streams.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64

MAX_SLOTS = 1 << 42
"""Exclusive upper bound of the slots of an interleaving; below it, int64 arithmetic is exact."""


def multiply_divide(x: Int64, factor: Int64, divisor: Int64, offset: Int64) -> Int64:
    """Return ``(x * factor + offset) // divisor`` exactly, for equal shapes and values below `MAX_SLOTS`."""
    # The estimate is off by one at most. Products that overflow cancel out: int64 wraps around.
    quotient: Int64 = (x * (factor / divisor)).astype(np.int64)
    remainder: Int64 = x * factor + offset - quotient * divisor
    exact: Int64 = quotient + remainder // divisor
    return exact


class Interleaving:
    """Slots ``[0, total)``, of which stream s has ``counts[s]``; beyond them, the sequence repeats."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts, self.total = list(counts), sum(counts)
        if not 0 < self.total < MAX_SLOTS:
            raise ConfigError(
                f"{self.total} samples cannot be interleaved; expected 1 to {MAX_SLOTS}"
            )
        # The streams are the first nodes, as leaves; the root is the last node.
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

    def _slots_of_left_child(self, node: Int64, slots: Int64) -> Int64:
        total = self._size[node]
        left_size = self._size[self._left[node]]
        return multiply_divide(slots, left_size, np.maximum(total, 1), total // 2)

    def streams_at(self, slots: Int64) -> tuple[Int64, Int64]:
        rounds, slots = np.divmod(slots, self.total)
        node = np.full(len(slots), len(self._size) - 1)
        active = np.flatnonzero(self._left[node] >= 0)
        while len(active):
            active_node, active_slot = node[active], slots[active]
            left_before = self._slots_of_left_child(active_node, active_slot)
            goes_left = self._slots_of_left_child(active_node, active_slot + 1) > left_before
            node[active] = np.where(goes_left, self._left[active_node], self._right[active_node])
            slots[active] = np.where(goes_left, left_before, active_slot - left_before)
            active = active[self._left[node[active]] >= 0]
        return node, slots + rounds * self._size[node]

    def slot_of(self, stream: int, turn: int) -> int:
        rounds, slot = divmod(turn, self.counts[stream])
        node = stream
        while (parent := self._parent[node]) >= 0:
            total, size = int(self._size[parent]), int(self._size[node])
            # The first x of the parent's slots of which this child has more than `slot`.
            half = total // 2 if node == self._left[parent] else total - 1 - total // 2
            slot = ((slot + 1) * total - half - 1) // size
            node = parent
        return slot + rounds * self.total

    def turns_before(self, slot: int) -> list[int]:
        rounds, slot = divmod(slot, self.total)
        turns = {len(self._size) - 1: slot}
        for node in range(len(self._size) - 1, len(self.counts) - 1, -1):
            left, right = int(self._left[node]), int(self._right[node])
            total = int(self._size[node])
            turns[left] = (turns[node] * int(self._size[left]) + total // 2) // max(total, 1)
            turns[right] = turns[node] - turns[left]
        return [turns[stream] + rounds * count for stream, count in enumerate(self.counts)]
