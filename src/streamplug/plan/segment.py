"""What holds of a run from a position on."""

from __future__ import annotations

from dataclasses import dataclass

from streamplug.plan.position import Position
from streamplug.types import World


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
        proportions: Proportion of each stream; None for what the options say.
        by_hand: Whether the proportions were set at run time, and replace planned ones.
    """

    start: Position
    world: World
    global_batch: int
    canonical_nodes: int
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
