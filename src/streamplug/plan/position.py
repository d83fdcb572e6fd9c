"""Where a loop over a data set stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """A place between two steps: all that comes before it was handed out.

    It is the same in every world, so a change of the world converts nothing.

    Attributes:
        epoch: Number of the epoch, from 0.
        done: Units of the order of that epoch before it, over all ranks: samples, or batches where these vary
            in size. The end of an epoch is the start of the next one.
    """

    epoch: int = 0
    done: int = 0
