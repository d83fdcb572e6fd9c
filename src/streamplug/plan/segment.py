"""Positions and segments: what a run reads from a position on, such as other proportions."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import World

MAX_PROPORTION = 1e100


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


@dataclass(frozen=True, slots=True)
class Segment:
    """What the order of a run depends on besides its options, from a position on.

    A run has one from its start on, and another for each change. What comes before a segment does not depend
    on it.

    Attributes:
        start: Position from which it holds, between two global batches.
        world: Numbers of nodes and of ranks per node with which the run began.
        global_batch: Samples of a global batch over all ranks, or its batches where these vary in size.
        canonical_nodes: Number of canonical nodes of the order.
        block_size: Block size of the shuffle in samples where the options give none; None for the default of
            the algorithm.
        proportions: Proportion of each stream; None for what the options say.
        by_hand: Whether the proportions were set at run time, and replace planned ones.
    """

    start: Position
    world: World
    global_batch: int
    canonical_nodes: int
    block_size: int | None = None
    proportions: tuple[float, ...] | None = None
    by_hand: bool = False

    @property
    def batch(self) -> int:
        """Samples per batch of one rank in the world with which the run began."""
        return self.global_batch // self.world.ranks

    @property
    def is_planned(self) -> bool:
        """Whether its proportions are those of the options."""
        return self.proportions is not None and not self.by_hand


def check_proportions(proportions: Any, sizes: Sequence[int]) -> tuple[float, ...]:
    """Validate that each stream has a finite proportion of at least 0, not all 0, and 0 without samples."""
    numbers: list[Any] = [None]
    if isinstance(proportions, (list, tuple, np.ndarray)):
        numbers = [v.item() if isinstance(v, np.generic) else v for v in proportions]
    if not all(isinstance(n, (int, float)) and abs(n) < MAX_PROPORTION for n in numbers):
        raise ConfigError(
            f"proportions {reprlib.repr(proportions)}: expected numbers below {MAX_PROPORTION:g}"
        )
    values = tuple(float(number) for number in numbers)
    if len(values) != len(sizes):
        raise ConfigError(f"{len(values)} proportions for {len(sizes)} streams")
    if not all(value >= 0 for value in values) or not any(values):
        raise ConfigError(f"proportions {list(values)}: numbers of at least 0, not all of them 0")
    for number, (value, size) in enumerate(zip(values, sizes)):
        if value and not size:
            raise ConfigError(f"stream {number} has no samples, and its proportion is {value}")
    return values
