"""Interface of planners, which make the epochs of a run, and a further segment when something changes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from streamplug.errors import (
    ConfigError,
    PluginError,
    class_name,
)
from streamplug.plan.epoch import Epoch
from streamplug.plan.segment import Position, Segment
from streamplug.plan.streams import Streams
from streamplug.types import Int64, World


class Planner(ABC):
    """Makes the epochs of a run: a pure function of their number and of the segments of the run.

    It is sent to loader workers, so it must pickle.

    Attributes:
        counts_batches: Whether positions count batches over all ranks, which vary in size, not samples.
        micro_batches: With these, batches of a global batch over all ranks; None for the number of ranks with
            which a run begins.
        streams: The streams.
        depends_on_world: Whether batches depend on the number of ranks with which the run began.
    """

    counts_batches: ClassVar[bool] = False
    depends_on_world: bool = False
    micro_batches: int | None = None

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    @abstractmethod
    def epoch(self, number: int, segments: Sequence[Segment]) -> Epoch:
        """Return an epoch.

        Args:
            number: Number of the epoch.
            segments: Those of the run, by their start; later ones than the epoch have no effect on it.

        Raises:
            ConfigError: If the order cannot be made for this world.
        """

    def length(self, segment: Segment, world: World) -> int:
        """Return the number of samples of a rank in an epoch, approximately if batches vary in size.

        The default completes the last global batch.
        """
        size, global_batch = self.streams.epoch_size, segment.global_batch
        if not self.counts_batches:
            size = -(-size // global_batch) * global_batch
        return -(-size // world.ranks)

    def identity(self, segment: Segment) -> dict[str, Any]:
        """Return what else the order depends on, as JSON values that states compare."""
        return {}

    def options(self) -> dict[str, Any]:
        """Return options of the data set as JSON values, which tools need to open it as a state was saved."""
        return {}

    def begun_on(self, nodes: int, segment: Segment) -> Segment:
        """Return the first segment of a run that resumes a state of mosaicml-streaming.

        Args:
            nodes: Number of nodes with which the run began: all that such a state says of its world.
            segment: What a run has that begins in the current world.
        """
        return segment

    def max_units(self, segments: Sequence[Segment]) -> int:
        """Return an upper bound of the units of an epoch, to refuse positions that no run reaches."""
        # Each stream may pad a global batch of its own, and the last one may be completed.
        padding = (len(self.streams.sizes) + 2) * max(s.global_batch for s in segments)
        return self.streams.epoch_size + padding

    def order_substitutes(self, sample: int, candidates: Int64) -> Int64:
        """Return candidates for the place of a sample that cannot be read, in the order to try.

        Args:
            sample: The sample id.
            candidates: Other sample ids of its global batch, in the order in which they would be tried.
        """
        return candidates

    # -- segments --------------------------------------------------------------------

    def position_of(self, step: int, segments: Sequence[Segment]) -> Position:
        """Return the position before a global batch of the run.

        Raises:
            ConfigError: If the proportions of streams cannot change.
            StateError: If it takes unreasonably long to find, as the step may be of a damaged state.
        """
        raise self._no_proportions()

    def with_proportions(
        self,
        segments: Sequence[Segment],
        position: Position,
        proportions: Sequence[float],
    ) -> list[Segment]:
        """Return the segments of a run that has other proportions of its streams from a position on.

        Raises:
            ConfigError: If they are invalid, or the order cannot change so.
        """
        raise self._no_proportions()

    def _no_proportions(self) -> ConfigError:
        return ConfigError("the proportions of streams cannot change with this order")

    def with_global_batch(
        self, segments: Sequence[Segment], position: Position, global_batch: int
    ) -> list[Segment]:
        """Return the segments of a run that has another global batch from a position on.

        Raises:
            ConfigError: If the order cannot change so.
        """
        before = segments[-1].global_batch
        raise ConfigError(
            f"the global batch of {before} becomes {global_batch}, which needs batching_method='random' and "
            "partition_algo='elastic', without a curriculum; go on with as many samples in all"
        )

    def segments_until(self, position: Position, segments: Sequence[Segment]) -> list[Segment]:
        """Return the segments that hold at a position or before it, with those that options plan."""
        return [segment for segment in segments if segment.start <= position]

    def resume(
        self, saved: Sequence[Segment], position: Position, *, within_step: bool = False
    ) -> list[Segment]:
        """Return the segments with which a run resumes at a position, of those of its state.

        Changes that are planned at that position are those of the options, unless it is `within_step`.

        Raises:
            StateError: If they lack planned ones that took effect.
        """
        return [segment for segment in saved if segment.start <= position]


def checked_epoch(planner: Planner, number: int, segments: Sequence[Segment]) -> Epoch:
    """Return an epoch of a planner, which may be that of another distribution.

    Raises:
        PluginError: If it is none, or lacks its attributes.
    """
    epoch: Any = planner.epoch(number, segments)  # unchecked so far
    kind = class_name(type(planner))
    if not isinstance(epoch, Epoch):
        raise PluginError(f"{kind}: epoch() returned {type(epoch).__name__}: expected an Epoch")
    units, size = getattr(epoch, "units", None), getattr(epoch, "global_batch", None)
    if not (isinstance(units, range) and isinstance(size, int) and size > 0):
        raise PluginError(
            f"{kind}: epoch() returned an Epoch with units={units!r:.60} and global_batch={size!r:.60}: "
            "expected a range, and a size above 0"
        )
    return epoch


def checked_identity(planner: Planner, segment: Segment) -> Any:
    """Return the identity of a planner as a state has it.

    Raises:
        PluginError: If it is not made of JSON values.
    """
    identity = planner.identity(segment)
    try:
        return json.loads(json.dumps(identity))
    except (TypeError, ValueError) as error:
        kind = class_name(type(planner))
        raise PluginError(
            f"{kind}: identity() returned {identity!r:.100}, which is not made of JSON values: {error}"
        ) from None


def order_substitutes(sample: int, ids: Int64, first_ids: Sequence[int]) -> Int64:
    """Return the samples that may take the place of `sample`, in the order in which they are tried.

    Those of the same stream come first, from half of them further on in cyclic order, so that neighbours,
    which one damaged shard may have, get different substitutes.

    Args:
        sample: The sample id, which is in `ids`.
        ids: Distinct sample ids of the step, ascending, shape ``[n]``.
        first_ids: First sample id of each stream, and the total.

    Returns:
        Sample ids, shape ``[n - 1]``.
    """
    streams = np.searchsorted(first_ids, ids, side="right")
    is_same = streams == np.searchsorted(first_ids, sample, side="right")
    same, other = ids[is_same], ids[~is_same]
    same = np.roll(same, -(int(np.searchsorted(same, sample)) + len(same) // 2))
    other = np.roll(other, -int(np.searchsorted(other, sample)))
    return np.concatenate([same[same != sample], other])
