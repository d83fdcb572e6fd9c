"""Lookup of the samples of a batch and the batches of a sample, from the plan alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.plan import checked_batches
from streamplug.run.session import Session


@dataclass(frozen=True, slots=True)
class SampleUse:
    """One use of a sample in an epoch.

    Attributes:
        epoch: Number of the epoch.
        step: Number of the step in the epoch: that of the global batch, which several steps make with
            batches of a budget.
        rank: Rank that reads it; with `replication`, the number of the group of ranks that do, from 0.
        place: Position in that rank's batch.
        sample: Sample id.
        stream: Number of its stream.
        shard: Number of its shard in that stream.
        file: Base name of the shard's raw file.
        index: Position in the shard.
    """

    epoch: int
    step: int
    rank: int
    place: int
    sample: int
    stream: int
    shard: int
    file: str
    index: int


def explain(
    session: Session,
    *,
    epoch: int | None,
    step: int,
    rank: int | None,
) -> list[SampleUse]:
    """Return the samples of a global batch; without `epoch`, of the epoch started last, or else the next."""
    run, world = session.run, session.world
    epoch = _epoch(session, epoch)
    plan = run.epoch(epoch, world)
    step = _index("step", step, plan.steps(world), f"epoch {epoch} has the steps")
    if rank is not None:
        there_are = "there are the ranks"
        if (replication := session.placement.replication) > 1:
            there_are = (
                f"with replication={replication}, groups of ranks count as one, and there are"
            )
        rank = _index("rank", rank, world.ranks, there_are)
    uses = []
    for reading_rank in range(world.ranks) if rank is None else [rank]:
        reader, steps = replace(world, rank=reading_rank), np.array([step])
        ids, _ = checked_batches(plan, reader, steps, session.size)
        uses += [
            SampleUse(epoch, step, reading_rank, place, sample, *session.reader.locate(sample))
            for place, sample in enumerate(ids.tolist())
        ]
    return uses


def where(session: Session, *, epoch: int | None, sample: int) -> Iterator[SampleUse]:
    """Yield the uses of a sample in an epoch, see `explain`, in the order of steps."""
    size = session.size
    sample = _index("sample_id", sample, size, "there are the samples")
    run, world = session.run, session.world
    epoch = _epoch(session, epoch)
    for place in run.epoch(epoch, world).where(world, sample):
        yield SampleUse(
            epoch, place.step, place.rank, place.position, sample, *session.reader.locate(sample)
        )


def _index(name: str, value: Any, stop: int, there_are: str) -> int:
    """Return an index, also of a tensor; raise ConfigError unless it is below `stop`."""
    with suppress(TypeError):
        if not isinstance(value, bool) and 0 <= index(value) < stop:
            return index(value)
    raise ConfigError(f"{name}={value!r}: {there_are} 0 to {stop - 1}")


def _epoch(session: Session, epoch: int | None) -> int:
    number: int | None = whole_number("epoch", epoch, 0)
    return session.run.current().epoch if number is None else number
