"""Selection of a rank's state, and the handover of samples from ranks that there were to those there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamplug.errors import StateError
from streamplug.run import Session
from streamplug.types import World
from streamplug_packing.state import PackingState, SamplePlace, SavedPacks

_MAX_EPOCHS_APART = 1000
_MAX_UNREAD_SAMPLES = 4_000_000
"""Samples between the ranks' positions, which this process lists in about 500 MB and 20 s.

Ranks yield the same number of packs, so their positions differ by the sums of sizes of their samples: by far
less than an epoch of a large data set, and by a few epochs of a small one.
"""


def select_records(states: Sequence[SavedPacks], session: Session) -> tuple[World, dict[int, Any]]:
    """Return the records of all ranks that states have, and the world of these.

    With replication, the ranks that read the same samples count as one rank.

    Raises:
        StateError: If the record of this rank is missing, some of another world are, they are of several
            worlds, or two of one rank differ.
    """
    worlds = sorted({(s.world.nodes, s.world.ranks_per_node) for s in states if s.records})
    if len(worlds) > 1:  # the own record alone would lose what others hold
        raise StateError(
            f"the list has states of several worlds, (nodes, ranks per node) = {worlds}: save the states of "
            "all ranks before resize()"
        )
    records: dict[int, Any] = {}
    for rank, record in (item for state in states for item in state.records.items()):
        if records.setdefault(rank, record) != record:
            raise StateError(
                f"the list has two states of rank {rank} of {World(*worlds[0]).ranks} that differ: save the "
                "states of all its ranks after the same pack; ranks of a replication group count as one rank"
            )
    own = session.world
    saved = World(*worlds[0]) if worlds else replace(own, rank=0)
    if not records or (saved == replace(own, rank=0) and own.rank in records):
        return saved, records
    # The number of ranks is compared first: that of a damaged state may be any.
    if len(records) != saved.ranks or saved == replace(own, rank=0):
        raise StateError(
            f"{len(records)} states, of the ranks {sorted(records)} of {saved.ranks} on {saved.nodes} nodes; "
            f"this is rank {own.rank} of {own.ranks} on {own.nodes}: load its own state, or a list of the "
            "states of all ranks"
        )
    if not session.run.options.elastic:
        raise StateError(
            f"partition_algo={session.run.options.partition_algo!r}: packs are resumed on the same number of "
            "nodes and ranks only"
        )
    return saved, records


def check_distance(states: Iterable[PackingState]) -> None:
    """Raise `StateError` if ranks are epochs apart from each other that cannot be counted."""
    epochs = [state.epoch for state in states]
    if max(epochs) - min(epochs) > _MAX_EPOCHS_APART:
        raise StateError(f"the states of the ranks are more than {_MAX_EPOCHS_APART} epochs apart")


def hand_over(ranks: Sequence[tuple[World, PackingState]], session: Session) -> list[PackingState]:
    """Return the states of the ranks after others; the session stands where the one that read most stood.

    What they read and did not yield, and what the others did not read yet of steps before that, is dealt to
    the ranks, in the order of the plan.

    Raises:
        StateError: If these are too many samples.
    """
    epoch, step = session.next_step()
    left = [place for _, state in ranks for place in state.places]
    unread = list(_unread_steps(session, ranks, (epoch, step)))
    num_samples = sum(len(steps) * _rank_batch(session, world) for _, world, steps in unread)
    if num_samples > _MAX_UNREAD_SAMPLES:
        raise StateError(
            f"the states of the ranks are up to {epoch - unread[0][0]} epochs apart: {num_samples} samples "
            f"between them would be dealt to other ranks, expected at most {_MAX_UNREAD_SAMPLES}; save the "
            "states of all ranks after the same number of packs, or load each rank's own state on the same "
            "nodes and ranks"
        )
    for part in unread:
        left += _places_of(session, *part)
    left.sort()
    ranks_now = session.world.ranks
    return [PackingState(epoch, step, tuple(left[rank::ranks_now])) for rank in range(ranks_now)]


def _unread_steps(
    session: Session, ranks: Sequence[tuple[World, PackingState]], last: tuple[int, int]
) -> Iterator[tuple[int, World, range]]:
    """Yield epoch, rank and steps of what each rank did not read before a position, epoch by epoch."""
    for epoch in range(min(state.epoch for _, state in ranks), last[0] + 1):
        stop = (
            last[1]
            if epoch == last[0]
            else session.run.epoch(epoch, session.world).steps(session.world)
        )
        for world, state in ranks:
            start = state.step if epoch == state.epoch else 0
            if epoch >= state.epoch and start < stop:
                yield epoch, world, range(start, stop)


def _places_of(
    session: Session, epoch: int, world: World, steps: Iterable[int]
) -> Iterator[SamplePlace]:
    plan = session.run.epoch(epoch, session.world)
    for step in steps:
        ids, _ = plan.ids(world, np.array([step]))
        for sample in ids.tolist():
            yield SamplePlace(epoch, step, sample)


def _rank_batch(session: Session, world: World) -> int:
    return session.batch * session.world.ranks // world.ranks
