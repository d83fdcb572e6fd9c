"""The latest change of the world of a run, in memory that all processes of a rank share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.types import World


@dataclass(frozen=True, slots=True)
class WorldChange:
    """A rank's place in a new world, and the step from which it holds.

    Attributes:
        number: Number of changes so far, including this one.
        batch_size: Samples per batch of one rank, a group of replicas counting as one.
        epoch: Epoch of the loop that goes on in the new world; -1 if there was none.
        step: Step with which that loop goes on.
        changes_by_hand: Number of changes of the proportions that were made by hand before that step.
    """

    number: int
    nodes: int
    ranks_per_node: int
    rank: int
    batch_size: int
    epoch: int = -1
    step: int = 0
    changes_by_hand: int = 0

    def apply(self, world: World) -> World:
        """Return the new world with the workers of `world`."""
        return replace(world, nodes=self.nodes, ranks_per_node=self.ranks_per_node, rank=self.rank)

    def to_cells(self) -> list[int]:
        """Return `CHANGE_CELLS` integers, the number first, and a checksum last."""
        values = astuple(self)
        return [*values, hash(values)]

    @classmethod
    def from_cells(cls, cells: Sequence[int]) -> WorldChange | None:
        """Return the change in these cells; None if there is none, or another process is writing it."""
        *values, checksum = cells
        # Without locks or memory barriers, half of an update may be seen.
        return cls(*values) if hash(tuple(values)) == checksum else None


CHANGE_CELLS = 9  # number of int64 cells of a change


def check_workers(world: World, before: World) -> None:
    """Raise `ConfigError` if `world` is not a world, or changes the workers of a rank."""
    if not isinstance(world, World):
        raise ConfigError(f"resize({world!r:.60}): expected a streamplug.World")
    workers = world.workers_per_rank, world.worker
    if workers not in ((1, 0), (before.workers_per_rank, before.worker)):
        raise ConfigError(
            f"resize() to {workers[0]} workers per rank: the workers stay those of the loader; leave "
            "workers_per_rank= and worker= out"
        )


def divide_global_batch(size: int, unit: str, world: World) -> int:
    """Return the part of a global batch of one of the ranks of `world`, or raise `ConfigError`."""
    batch, rest = divmod(size, world.ranks)
    if rest or not batch:
        raise ConfigError(
            f"resize() to {world.ranks} ranks: the global batch of {size} {unit}, which stays "
            f"the same, is no multiple of {world.ranks}; go on with a number of ranks that divides it"
        )
    return batch


def rewind_position(
    position: tuple[int, int] | None, rewind: int, steps_per_global_batch: int
) -> tuple[int, int]:
    """Return the epoch and step of a loop, `rewind` global batches before; ``(-1, 0)`` without a loop."""
    steps = (whole_number("rewind", rewind, 0) or 0) * steps_per_global_batch
    epoch, step = position or (-1, 0)
    if steps > step:
        raise ConfigError(
            f"rewind={rewind}: the loop has yielded {step} batches of its epoch; rewind no more than these"
        )
    return epoch, step - steps
