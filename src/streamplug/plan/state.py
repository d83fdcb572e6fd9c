"""State of a run, from which it resumes exactly."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from streamplug.errors import StateError
from streamplug.plan.dataset_fingerprint import DatasetFingerprint, describe_difference

STATE_VERSION = 1
MAX_COUNT = 1 << 62

VALUE_MEANINGS = {
    "choose": " (samples that an epoch takes of each stream; None with a curriculum)",
    "epoch_size": " (samples of an epoch)",
    "global_batch": " (batch_size times the number of ranks)",
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
        global_batch: Samples per step over all ranks.
        streams: Samples of each stream.
        shuffle_algo: Name of the shuffle; None without shuffling.
        choose: Samples that an epoch takes of each stream; None with a curriculum, as the next two.
        sampling_method: ``"balanced"`` samples anew in every epoch, ``"fixed"`` once.
        sampling_granularity: Samples chosen of a shard at a time.
        shares: Shares of the streams before rounding, where batches depend on them; else None.
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
    fingerprint: DatasetFingerprint | None = None

    def to_state(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)[:-1]}


def save(
    identity: OrderIdentity,
    epoch: int,
    step: int,
    initial_nodes: int,
    initial_batch_size: int | None = None,
) -> dict[str, Any]:
    """Return a state as JSON values; `step` is the first step of the epoch that is not done.

    ``epoch``, ``sample_in_epoch`` (over all ranks), ``num_canonical_nodes``, ``shuffle_seed`` and
    ``initial_physical_nodes`` are named as in the state of mosaicml-streaming. `initial_batch_size` is None
    where the order does not depend on it.
    """
    initial = {"initial_physical_nodes": initial_nodes, "initial_batch_size": initial_batch_size}
    return {
        "version": STATE_VERSION,
        "epoch": epoch,
        "sample_in_epoch": step * identity.global_batch,
        **{name: value for name, value in initial.items() if value is not None},
        **identity.to_state(),
        **({} if identity.fingerprint is None else identity.fingerprint.to_state()),
    }


def load(state: Mapping[str, Any], identity: OrderIdentity) -> tuple[int, int]:
    """Return the epoch and the step at which a run resumes, or raise StateError naming differences.

    A state without ``version`` is treated as one of mosaicml-streaming, which has fewer values to compare.
    """
    version = state.get("version")
    if version is not None and (type(version) is not int or version != STATE_VERSION):
        raise StateError(
            f"the state has version {reprlib.repr(version)}; this streamplug loads {STATE_VERSION}"
        )
    for key in ("epoch", "sample_in_epoch"):
        value = state.get(key)
        if type(value) is not int or not 0 <= value < MAX_COUNT:
            raise StateError(f"the state has {key}={reprlib.repr(value)}; expected a whole number")
    ours = identity.to_state()
    keys = ours if version else ("num_canonical_nodes", "shuffle_seed")
    differences = [
        _describe_shards(state, identity)
        if key == "shards"
        else describe_difference(key, state.get(key), ours[key], VALUE_MEANINGS.get(key, ""))
        for key in keys
        if state.get(key) != ours[key]
    ]
    if differences:
        raise StateError("the state is of another run: " + "; ".join(differences))
    step, remainder = divmod(state["sample_in_epoch"], identity.global_batch)
    if remainder and not version and state["sample_in_epoch"] >= identity.epoch_size:
        return state["epoch"], step + 1  # after the last batch of an epoch, which was short
    if remainder:
        raise StateError(
            f"the state is at sample {state['sample_in_epoch']}, inside a global batch of "
            f"{identity.global_batch} samples; states are taken between global batches"
        )
    return state["epoch"], step


def _describe_shards(state: Mapping[str, Any], identity: OrderIdentity) -> str:
    if type(state.get("shards")) is not str:
        return "shards: the state has no digest of them: it is truncated, or was changed"
    return (identity.fingerprint or DatasetFingerprint(identity.shards)).describe_difference(state)
