"""Interface of epochs: sample ids by step and rank, and the reverse; epochs of several segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from streamplug.errors import (
    ConfigError,
    PluginError,
    class_name,
)
from streamplug.types import Int64, World


@dataclass(frozen=True, slots=True)
class Place:
    """Step, rank and position in the rank's batch at which a sample is read."""

    step: int
    rank: int
    position: int


class Epoch(ABC):
    """One epoch of a run, or the part of it from a position on.

    Attributes:
        units: Units over all ranks, whole global batches: positions of samples, or batches where these vary
            in size. They begin above 0 for a part of an epoch.
        global_batch: Units of a global batch.
    """

    units: range
    global_batch: int

    def units_per_step(self, world: World) -> int:
        """Return the units of a step, which has a batch of each rank.

        Raises:
            ConfigError: If the ranks do not divide the global batch.
        """
        if self.global_batch % world.ranks:
            raise ConfigError(
                f"a global batch of {self.global_batch} cannot be divided among {world.ranks} ranks; use a "
                "number of ranks that divides it"
            )
        return self.global_batch

    def steps(self, world: World) -> int:
        """Return the number of steps."""
        return len(self.units) // self.units_per_step(world)

    def step_at(self, world: World, done: int) -> int:
        """Return the step that begins at, or contains, a unit."""
        return (done - self.units.start) // self.units_per_step(world)

    def done_before(self, world: World, step: int) -> int:
        """Return the unit at which a step begins."""
        return self.units.start + step * self.units_per_step(world)

    def global_step(self, world: World, step: int) -> int:
        """Return the number of the global batch of a step; where batches vary it may take several steps."""
        return step * self.units_per_step(world) // self.global_batch

    @abstractmethod
    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        """Return the sample ids of a rank's batches.

        Args:
            world: The world, with the rank.
            steps: Steps, shape ``[n]``.

        Returns:
            The ids of all batches, one after the other, and the offset of each batch in them with the total
            at the end, shape ``[n + 1]``.
        """

    def global_ids(self, world: World, step: int) -> Int64:
        """Return the distinct sample ids of the global batch of a step, ascending."""
        count = self.global_batch // self.units_per_step(world)
        first = step - step % count
        steps = np.arange(first, first + count)
        ranks = (replace(world, rank=rank) for rank in range(world.ranks))
        return np.unique(np.concatenate([self.ids(rank, steps)[0] for rank in ranks]))

    @abstractmethod
    def where(self, world: World, sample: int) -> list[Place]:
        """Return the places at which a sample is read, sorted by step."""

    def rows_per_step(self, world: World) -> int:
        """Return the approximate number of samples of a rank's batch."""
        return self.units_per_step(world) // world.ranks


class JoinedEpoch(Epoch):
    """Parts of an epoch of batches of one size each, read up to the start of the next part.

    A step is a global batch, also of parts whose global batch the present ranks do not divide.
    """

    def __init__(self, parts: Sequence[Epoch]) -> None:
        self._parts = parts
        self._starts = [part.units.start for part in parts]
        self.units = range(self._starts[0], parts[-1].units.stop)
        self.global_batch = parts[-1].global_batch
        # First step of each part, and the total.
        self._first_steps = [0]
        for part, (start, stop) in zip(parts, pairwise([*self._starts, self.units.stop])):
            self._first_steps.append(self._first_steps[-1] + (stop - start) // part.global_batch)

    def _part_of(self, step: int) -> tuple[Epoch, int]:
        """Return the part of a step, and its first step."""
        number = bisect_right(self._first_steps, step, hi=len(self._parts)) - 1
        return self._parts[number], self._first_steps[number]

    def steps(self, world: World) -> int:
        return self._first_steps[-1]

    def step_at(self, world: World, done: int) -> int:
        number = max(bisect_right(self._starts, done) - 1, 0)
        steps = (done - self._starts[number]) // self._parts[number].global_batch
        return self._first_steps[number] + steps

    def done_before(self, world: World, step: int) -> int:
        part, first = self._part_of(step)
        return part.units.start + (step - first) * part.global_batch

    def global_step(self, world: World, step: int) -> int:
        return step

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        of_part = np.searchsorted(self._first_steps[1:-1], steps, "right")
        cuts = [0, *(np.flatnonzero(np.diff(of_part)) + 1).tolist(), len(steps)]
        ids, sizes = [np.empty(0, np.int64)], [np.zeros(1, np.int64)]
        for begin, end in pairwise(cuts):
            if begin < end:
                number = int(of_part[begin])
                first = self._first_steps[number]
                own, offsets = self._parts[number].ids(world, steps[begin:end] - first)
                ids.append(own)
                sizes.append(np.diff(offsets))
        return np.concatenate(ids), np.cumsum(np.concatenate(sizes))

    def global_ids(self, world: World, step: int) -> Int64:
        part, first = self._part_of(step)
        return part.global_ids(world, step - first)

    def where(self, world: World, sample: int) -> list[Place]:
        return [
            replace(place, step=place.step + first)
            for part, (first, end) in zip(self._parts, pairwise(self._first_steps))
            for place in part.where(world, sample)
            if place.step < end - first
        ]

    def rows_per_step(self, world: World) -> int:
        return max(part.global_batch for part in self._parts) // world.ranks


def batch_positions(world: World, batch: int) -> Int64:
    """Return the sorted positions in a global batch that a rank reads, shape ``[batch]``.

    Node n of P takes every P-th position from n on, which keeps it on its own canonical nodes; its rank r
    of R takes every R-th of those.
    """
    return world.node + world.nodes * (
        world.rank_of_node + world.ranks_per_node * np.arange(batch, dtype=np.int64)
    )


def position_owner(world: World, position: int) -> tuple[int, int]:
    """Return the rank that reads a position of a global batch, and the position in the rank's batch."""
    rest, node = divmod(position, world.nodes)
    own_position, rank = divmod(rest, world.ranks_per_node)
    return node * world.ranks_per_node + rank, own_position


def equal_offsets(count: int, batch: int) -> Int64:
    """Return the offsets of batches of one size, shape ``[count + 1]``."""
    return np.arange(0, (count + 1) * batch, batch) if batch else np.zeros(count + 1, np.int64)


def checked_batches(epoch: Epoch, world: World, steps: Int64, size: int) -> tuple[Int64, Int64]:
    """Return `Epoch.ids`, which must be ids of a data set of `size` samples.

    Raises:
        PluginError: If they are not, or the offsets are not those of their batches.
    """
    result: object = epoch.ids(world, steps)  # unchecked so far
    kind = class_name(type(epoch))
    if not (isinstance(result, tuple) and len(result) == 2):
        raise PluginError(
            f"{kind}: ids() returned {type(result).__name__}: expected ids and offsets"
        )
    for name, array in zip(("ids", "offsets"), result):
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim != 1:
            what = f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}"
            raise PluginError(
                f"{kind}: ids() returned {name} of {what}: expected integers, shape [n]"
            )
    ids, offsets = result
    if len(offsets) != len(steps) + 1 or offsets[0] or offsets[-1] != len(ids):
        raise PluginError(
            f"{kind}: ids() returned {len(offsets)} offsets from {offsets[:1].tolist()} to "
            f"{offsets[-1:].tolist()} for {len(steps)} steps and {len(ids)} ids: expected "
            f"{len(steps) + 1}, from 0 to {len(ids)}"
        )
    if (offsets[1:] < offsets[:-1]).any():
        raise PluginError(f"{kind}: ids() returned offsets that decrease")
    if len(ids) and (ids.min() < 0 or ids.max() >= size):
        wrong = int(ids[(ids < 0) | (ids >= size)][0])
        raise PluginError(f"{kind}: ids() returned {wrong}: expected sample ids in [0, {size})")
    return ids, offsets


def rows_of(ids: Int64, offsets: Int64) -> Iterator[Int64]:
    """Yield the ids of each batch."""
    yield from np.split(ids, offsets[1:-1]) if len(offsets) > 1 else ()


def worker_steps(world: World, first: int, steps: int) -> range:
    """Return the steps in ``range(first, steps)`` that a worker reads."""
    return range(first + world.worker, steps, world.workers_per_rank)
