"""Selection of a rank's state, and the handover of samples from ranks that there were to those there are."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from streamplug.config import is_integer
from streamplug.errors import StateError
from streamplug.run.session import Session
from streamplug.types import World
from streamplug_packing.state import PackingState, SamplePlace, world_of_state

POSITION_KEYS = ("epoch", "sample_in_epoch", "curriculum", "curriculum_changes")
"""Keys of the state of an order that tell where a rank stands, rather than which order it is."""

_MAX_EPOCHS_APART = 1000
_MAX_UNREAD_SAMPLES = 4_000_000
"""Samples between the ranks' positions, which this process lists in about 500 MB and 20 s.

Ranks yield the same number of packs, so their positions differ by the sums of sizes of their samples: by far
less than an epoch of a large data set, and by a few epochs of a small one.
"""

RankStates = Sequence["tuple[World, Mapping[str, Any]]"]
"""Places of ranks, and their states."""


def select_states(saved: Any, session: Session) -> RankStates:
    """Return the state of this rank alone, or those of all ranks of another world.

    With replication, the ranks that read the same samples count as one rank.

    Raises:
        StateError: If this rank's state is missing, some of another world are, they are of several worlds, or
            two of one rank differ.
    """
    states = [saved] if isinstance(saved, Mapping) else saved
    if not isinstance(states, (list, tuple)) or not states or not all(map(_is_state, states)):
        raise StateError(
            "a state is what state_dict() returned, or a list of those of all ranks, not "
            f"{reprlib.repr(saved)}"
        )
    ranks = _drop_replicas(
        sorted(((world_of_state(s["packing"]), s) for s in states), key=lambda r: r[0].rank)
    )
    own = session.world
    sizes = sorted({(world.nodes, world.ranks_per_node) for world, _ in ranks})
    if len(sizes) > 1:  # the own state alone would lose what others hold
        raise StateError(
            f"the list has states of several worlds, (nodes, ranks per node) = {sizes}: save the states of "
            "all ranks before resize()"
        )
    for world, state in ranks:
        if world == own:
            return [(world, state)]
    first = ranks[0][0]
    # The number of ranks is compared first: that of a damaged state may be any.
    if len(ranks) != first.ranks or any(
        world != replace(first, rank=n) for n, (world, _) in enumerate(ranks)
    ):
        raise StateError(
            f"{len(ranks)} states, of the ranks {[w.rank for w, _ in ranks]} of {first.ranks} on "
            f"{first.nodes} nodes; this is rank {own.rank} of {own.ranks} on {own.nodes}: load its own "
            "state, or a list of the states of all ranks"
        )
    if not session.run.options.elastic:
        raise StateError(
            f"partition_algo={session.run.options.partition_algo!r}: packs are resumed on the same number of "
            "nodes and ranks only"
        )
    return ranks


def _drop_replicas(ranks: RankStates) -> RankStates:
    """Return one state of each rank, or group of ranks that read the same samples; `ranks` is sorted."""
    distinct = list(ranks[:1])
    for before, (world, state) in pairwise(ranks):
        if world != before[0]:
            distinct.append((world, state))
        elif state != before[1]:
            raise StateError(
                f"the list has two states of rank {world.rank} of {world.ranks} that differ; ranks of one "
                "replication group count as one rank: save the states of all its ranks after the same pack"
            )
    return distinct


def _is_state(state: Any) -> bool:
    return isinstance(state, Mapping) and all(
        isinstance(state.get(part), Mapping) for part in ("order", "packing")
    )


def latest_order(ranks: RankStates) -> Mapping[str, Any]:
    """Return the state of the order of the rank that has read most.

    Raises:
        StateError: If the states are of different orders, or of epochs far from each other.
    """
    orders: list[Mapping[str, Any]] = [state["order"] for _, state in ranks]
    first, *others = ({k: v for k, v in o.items() if k not in POSITION_KEYS} for o in orders)
    if any(other != first for other in others):
        raise StateError("the states of the ranks are of different orders")
    earliest, latest = min(orders, key=order_position), max(orders, key=order_position)
    if latest["epoch"] - earliest["epoch"] > _MAX_EPOCHS_APART:
        raise StateError(f"the states of the ranks are more than {_MAX_EPOCHS_APART} epochs apart")
    changes = _changes_of(latest)
    for order in orders:
        own = _changes_of(order)
        if own != changes[: len(own)]:
            raise StateError(
                f"set_proportions() was called at different steps of ranks: {reprlib.repr(own)} and "
                f"{reprlib.repr(changes)}; with packs_per_epoch=, load the same state of the data set on all "
                "ranks before you call it"
            )
    return latest


def _changes_of(order: Mapping[str, Any]) -> list[Any]:
    """Return the changes of proportions in the state of an order."""
    changes: Any = order.get("curriculum", [])
    if not isinstance(changes, (list, tuple)):
        raise StateError(f"the state has curriculum={reprlib.repr(changes)}; expected a list")
    return list(changes)


def order_position(order: Mapping[str, Any]) -> tuple[int, int]:
    """Return the epoch and the step of the state of an order."""
    numbers = [order.get(key) for key in ("epoch", "sample_in_epoch", "global_batch")]
    epoch, samples, batch = (int(n) if is_integer(n) and n >= 0 else None for n in numbers)
    if epoch is None or samples is None or not batch:
        raise StateError(f"the state has order={reprlib.repr(order)}, which has no position")
    return epoch, samples // batch


def hand_over(ranks: Sequence[tuple[World, PackingState]], session: Session) -> PackingState:
    """Return the state of this rank after others; the session stands where the one that read most stood.

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
    return PackingState(epoch, step, tuple(sorted(left)[session.world.rank :: session.world.ranks]))


def _unread_steps(
    session: Session, ranks: Sequence[tuple[World, PackingState]], last: tuple[int, int]
) -> Iterator[tuple[int, World, range]]:
    """Yield epoch, rank and steps of what each rank did not read before a position, epoch by epoch."""
    for epoch in range(min(state.epoch for _, state in ranks), last[0] + 1):
        stop = last[1] if epoch == last[0] else session.run.epoch(epoch, session.world).steps
        for world, state in ranks:
            start = state.step if epoch == state.epoch else 0
            if epoch >= state.epoch and start < stop:
                yield epoch, world, range(start, stop)


def _places_of(
    session: Session, epoch: int, world: World, steps: Iterable[int]
) -> Iterator[SamplePlace]:
    plan, batch = session.run.epoch(epoch, session.world), _rank_batch(session, world)
    for step in steps:
        for sample in plan.ids(world, batch, np.array([step]))[0].tolist():
            if sample >= 0:
                yield SamplePlace(epoch, step, sample)


def _rank_batch(session: Session, world: World) -> int:
    return session.batch * session.world.ranks // world.ranks
