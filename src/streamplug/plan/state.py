"""The state of a run: a few readable numbers from which it continues exactly."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from streamplug.errors import StateError
from streamplug.plan.contents import Contents, difference

VERSION = 1
_LIMIT = 1 << 62

_MEANINGS = {
    "choose": " (samples that an epoch takes of each stream; None with a curriculum)",
    "epoch_size": " (samples of an epoch)",
    "global_batch": " (batch_size times the number of ranks)",
    "shares": " (shares of the streams; None where batches do not depend on them)",
    "shuffle_algo": " (None: shuffle=False)",
    "size": " (samples of the data set)",
    "streams": " (samples of each stream)",
}
"""What the names of a state's values stand for, where they are not arguments of the same name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What must be the same for a state to mean the same place in the same order.

    Attributes:
        size: Samples of the data set.
        shards: Digest of its shards' sizes.
        global_batch: Samples per step over all ranks.
        epoch_size: Samples of an epoch.
        streams: Samples of each stream.
        shuffle_algo: Name of the shuffle, or None when not shuffling.
        shuffle_seed: Its seed.
        shuffle_block_size: Its block size.
        num_canonical_nodes: Lanes of the order.
        partition_algo: Name of the partition.
        batching_method: Name of the batching method.
        choose: Samples that an epoch takes of each stream; None with a curriculum, as the next two.
        sampling_method: Whether what is chosen of a stream changes with the epoch.
        sampling_granularity: Samples that are chosen of a shard at a time.
        shares: Shares of the streams before rounding, where batches depend on them; else None.
        contents: What `shards` is the digest of, where that is known: states keep it for their errors only.
    """

    size: int
    shards: str
    global_batch: int
    epoch_size: int
    streams: list[int]
    shuffle_algo: str | None
    shuffle_seed: int
    shuffle_block_size: int
    num_canonical_nodes: int
    partition_algo: str
    batching_method: str
    choose: list[int] | None
    sampling_method: str | None
    sampling_granularity: int | None
    shares: list[float] | None
    contents: Contents | None = None

    def compared(self) -> dict[str, Any]:
        """Return what must be the same, as plain JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)[:-1]}


def save(
    identity: Identity, epoch: int, step: int, first_nodes: int, first_batch: int | None = None
) -> dict[str, Any]:
    """Return a state as plain JSON values.

    ``epoch``, ``sample_in_epoch`` (over all ranks), ``num_canonical_nodes``, ``shuffle_seed`` and
    ``initial_physical_nodes`` are named as in the state of mosaicml-streaming.

    Args:
        identity: Of the run.
        epoch: Which epoch.
        step: The first of its steps that is not yet done.
        first_nodes: Nodes on which the run began.
        first_batch: Samples per batch of one rank with which it began, where the order has to do with it.
    """
    began = {"initial_physical_nodes": first_nodes, "initial_batch_size": first_batch}
    return {
        "version": VERSION,
        "epoch": epoch,
        "sample_in_epoch": step * identity.global_batch,
        **{name: value for name, value in began.items() if value is not None},
        **identity.compared(),
        **({} if identity.contents is None else identity.contents.saved()),
    }


def load(state: Mapping[str, Any], identity: Identity) -> tuple[int, int]:
    """Return the epoch and the step at which a run continues.

    A state without ``version`` is taken as one of mosaicml-streaming, which has less to compare.

    Raises:
        StateError: If the state is malformed, or was not saved by a run with this identity; the
            message names what differs.
    """
    version = state.get("version")
    if version is not None and (type(version) is not int or version != VERSION):
        raise StateError(
            f"the state has version {reprlib.repr(version)}; this streamplug loads {VERSION}"
        )
    for key in ("epoch", "sample_in_epoch"):
        value = state.get(key)
        if type(value) is not int or not 0 <= value < _LIMIT:
            raise StateError(f"the state has {key}={reprlib.repr(value)}; expected a whole number")
    ours = identity.compared()
    keys = ours if version else ("num_canonical_nodes", "shuffle_seed")
    differing = [
        _shards_difference(state, identity)
        if key == "shards"
        else difference(key, state.get(key), ours[key], _MEANINGS.get(key, ""))
        for key in keys
        if state.get(key) != ours[key]
    ]
    if differing:
        raise StateError("the state is of another run: " + "; ".join(differing))
    step, rest = divmod(state["sample_in_epoch"], identity.global_batch)
    if rest and not version and state["sample_in_epoch"] >= identity.epoch_size:
        return state["epoch"], step + 1  # after the last batch of an epoch, which was short
    if rest:
        raise StateError(
            f"the state is at sample {state['sample_in_epoch']}, inside a global batch of "
            f"{identity.global_batch} samples; states are taken between global batches"
        )
    return state["epoch"], step


def _shards_difference(state: Mapping[str, Any], identity: Identity) -> str:
    """Say in words what differs where the digest of the contents does."""
    if type(state.get("shards")) is not str:
        return "shards: the state has no digest of them: it is cut short, or was changed"
    return (identity.contents or Contents(identity.shards)).difference(state)
