"""Round robin over sequences of bins of different lengths, with random access."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamplug.types import Int64


class BinOrder:
    """Bins of several sequences, one of each in turn; sequences that have ended are left out.

    Attributes:
        size: Number of bins of all sequences.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        """Interleave sequences with these numbers of bins."""
        self.size = sum(counts)
        self._counts = np.array(counts, np.int64)
        # Rounds with the same sequences: the first round of each run of them, and the bins before it.
        self._rounds = np.unique([0, *counts])[:-1]
        self._members = [np.flatnonzero(self._counts > first) for first in self._rounds.tolist()]
        widths = np.array([len(members) for members in self._members[:-1]], np.int64)
        lengths = np.diff(self._rounds) * widths
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    def locate(self, positions: Int64) -> tuple[Int64, Int64]:
        """Return the sequences of the bins at some positions, and the numbers of the bins in them."""
        runs = self._starts.searchsorted(positions, side="right") - 1
        sequences, numbers = np.empty_like(positions), np.empty_like(positions)
        for run in set(runs.tolist()):  # for a single position np.unique takes longer than the rest
            of_run, members = runs == run, self._members[run]
            rounds, turns = np.divmod(positions[of_run] - self._starts[run], len(members))
            sequences[of_run], numbers[of_run] = members[turns], self._rounds[run] + rounds
        return sequences, numbers

    def position(self, sequence: int, number: int) -> int:
        """Return the position of a bin of a sequence."""
        run = int(np.searchsorted(self._rounds, number, side="right")) - 1
        members = self._members[run]
        turn = int(np.searchsorted(members, sequence))
        return int(self._starts[run]) + (number - int(self._rounds[run])) * len(members) + turn

    def counts_before(self, position: int) -> Int64:
        """Return the number of bins of each sequence before a position."""
        run = int(np.searchsorted(self._starts, position, side="right")) - 1
        members = self._members[run]
        rounds, turn = divmod(position - int(self._starts[run]), len(members))
        counts: Int64 = np.minimum(self._counts, int(self._rounds[run]) + rounds)
        counts[members[:turn]] += 1
        return counts
