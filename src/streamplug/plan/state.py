"""State of a run, from which it resumes exactly."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from streamplug.errors import StateError
from streamplug.plan.dataset_fingerprint import DatasetFingerprint, describe_difference
from streamplug.types import World

STATE_VERSION = 1
MAX_COUNT = 1 << 62

VALUE_MEANINGS = {
    "choose": " (samples that an epoch takes of each stream; None with a curriculum)",
    "epoch_size": " (samples of an epoch)",
    "global_batch": " (batch_size times the number of ranks)",
    "micro_batches": " (batches of a global batch over all ranks)",
    "shares": " (shares of the streams; None where batches do not depend on them)",
    "shuffle_algo": " (None: shuffle=False)",
    "size": " (samples of the data set)",
    "streams": " (samples of each stream)",
}
"""Explanations, in errors, of values of a state that are not arguments of the same name."""


@dataclass(frozen=True, slots=True)
class OrderIdentity:
    """Values that a state and a run must have in common.

    Attributes:
        shards: Digest of the shard sizes.
        global_batch: Samples per step over all ranks; 0 if batches vary in size.
        streams: Samples of each stream.
        shuffle_algo: Name of the shuffle; None without shuffling.
        choose: Samples that an epoch takes of each stream; None with a curriculum, as the next two.
        sampling_method: ``"balanced"`` samples anew in every epoch, ``"fixed"`` once.
        sampling_granularity: Samples chosen of a shard at a time.
        shares: Shares of the streams before rounding, where batches depend on them; else None.
        micro_batches: Batches of a global batch over all ranks if they vary in size, else 0.
        batch_budget: What batches depend on that vary in size; None for those of a fixed size.
        fingerprint: Details behind the digest `shards`, saved for errors only.
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
    micro_batches: int = 0
    batch_budget: dict[str, Any] | None = None
    fingerprint: DatasetFingerprint | None = None

    def to_state(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)[:-1]}
        optional = ("global_batch", "micro_batches", "batch_budget")
        return {name: value for name, value in values.items() if name not in optional or value}

    @property
    def position_key(self) -> str:
        """Key of the position in the epoch over all ranks: in samples, or in batches that vary in size."""
        return "batch_in_epoch" if self.micro_batches else "sample_in_epoch"


def save(
    identity: OrderIdentity,
    epoch: int,
    done: int,
    initial_nodes: int,
    initial_batch_size: int | None = None,
    *,
    initial_world: World | None = None,
) -> dict[str, Any]:
    """Return a state as JSON values.

    `done` is the number of samples of the epoch that come before it over all ranks; with batches that vary in
    size, that of batches.

    ``epoch``, ``sample_in_epoch`` (over all ranks), ``num_canonical_nodes``, ``shuffle_seed`` and
    ``initial_physical_nodes`` are named as in the state of mosaicml-streaming. `initial_batch_size` and
    `initial_world` are None where the order does not depend on them.
    """
    initial = {
        "initial_physical_nodes": initial_nodes,
        "initial_batch_size": initial_batch_size,
        "initial_world": initial_world and [initial_world.nodes, initial_world.ranks_per_node],
    }
    return {
        "version": STATE_VERSION,
        "epoch": epoch,
        identity.position_key: done,
        **{name: value for name, value in initial.items() if value is not None},
        **identity.to_state(),
        **({} if identity.fingerprint is None else identity.fingerprint.to_state()),
    }


def load(
    state: Mapping[str, Any], identity: OrderIdentity, *, batches_per_step: int | None = None
) -> tuple[int, int]:
    """Return `epoch` and `done` of `save` at which a run resumes, or raise StateError naming differences.

    `batches_per_step` is the number of batches of a step over all ranks if they vary in size; else None. A
    state without ``version`` is treated as one of mosaicml-streaming, which has fewer values to compare.
    """
    version = state.get("version")
    if version is not None and (type(version) is not int or version != STATE_VERSION):
        raise StateError(
            f"the state has version {reprlib.repr(version)}; this streamplug loads {STATE_VERSION}"
        )
    if version is None and state.get("epoch") == -1:
        # mosaicml-streaming saves this before the first batch, and begins anew when it loads it.
        state = {**state, "epoch": 0, "sample_in_epoch": 0}
    position = _read_position(state)
    current = identity.to_state()
    keys = [*current] if version else ["num_canonical_nodes", "shuffle_seed"]
    differences = [
        _describe_shards(state, identity)
        if key == "shards"
        else describe_difference(key, state.get(key), current.get(key), VALUE_MEANINGS.get(key, ""))
        for key in dict.fromkeys([*keys, "batch_budget"])
        if state.get(key) != current.get(key)
    ]
    if differences:
        raise StateError("the state is of another run: " + "; ".join(differences))
    if not version and (identity.micro_batches or "batch_in_epoch" in state):
        raise StateError(
            "the state has no version, as one of mosaicml-streaming, whose batches all have one size; this "
            "run, or the state, has batches that vary in size"
        )
    if not version and position >= identity.epoch_size:
        position += -position % identity.global_batch  # the last batch may be short
    _check_between_steps(position, identity, batches_per_step or identity.global_batch)
    return state["epoch"], position


def read_trainer_epoch(state: Mapping[str, Any]) -> int | None:
    """Return the epoch of the trainer in which it saved a state; None if it did not name its epochs."""
    epoch = state.get("trainer_epoch")
    if epoch is not None and (type(epoch) is not int or not 0 <= epoch < MAX_COUNT):
        raise StateError(
            f"the state has trainer_epoch={reprlib.repr(epoch)}; expected a whole number"
        )
    return epoch


def _check_between_steps(position: int, identity: OrderIdentity, step_size: int) -> None:
    if identity.micro_batches % step_size:
        raise StateError(
            f"the state is of steps of {identity.micro_batches} batches, which cannot be divided among "
            f"{step_size} ranks; use a number of ranks that divides it"
        )
    if position % step_size:
        inside = (
            f"batch {position}, inside a step of {step_size} batches"
            if identity.micro_batches
            else f"sample {position}, inside a global batch of {step_size} samples"
        )
        raise StateError(f"the state is at {inside}; states are taken between global batches")


def _read_position(state: Mapping[str, Any]) -> int:
    """Return the position in the epoch, in samples or in batches that vary in size."""
    position_key = "batch_in_epoch" if "batch_in_epoch" in state else "sample_in_epoch"
    for key in ("epoch", position_key):
        value = state.get(key)
        if type(value) is not int or not 0 <= value < MAX_COUNT:
            raise StateError(f"the state has {key}={reprlib.repr(value)}; expected a whole number")
    position: int = state[position_key]
    return position


def _describe_shards(state: Mapping[str, Any], identity: OrderIdentity) -> str:
    if type(state.get("shards")) is not str:
        return "shards: the state has no digest of them: it is truncated, or was changed"
    return (identity.fingerprint or DatasetFingerprint(identity.shards)).describe_difference(state)
