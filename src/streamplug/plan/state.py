"""The state of a run: a few readable numbers from which it continues exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamplug.errors import StateError

VERSION = 1
_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Identity:
    """What must be the same for a state to mean the same place in the same order.

    Attributes:
        size: Samples of the data set.
        shards: Digest of its shards' sizes.
        global_batch: Samples per step over all ranks.
        shuffle_algo: Name of the shuffle, or None when not shuffling.
        shuffle_seed: Its seed.
        shuffle_block_size: Its block size.
        num_canonical_nodes: Lanes of the order.
        partition_algo: Name of the partition.
        choose: Samples that an epoch takes of each stream.
        sampling_method: Whether what is chosen of a stream changes with the epoch.
        sampling_granularity: Samples that are chosen of a shard at a time.
    """

    size: int
    shards: str
    global_batch: int
    shuffle_algo: str | None
    shuffle_seed: int
    shuffle_block_size: int
    num_canonical_nodes: int
    partition_algo: str
    choose: list[int]
    sampling_method: str
    sampling_granularity: int


def save(identity: Identity, epoch: int, sample_in_epoch: int, first_nodes: int) -> dict[str, Any]:
    """Return a state as plain JSON values.

    ``epoch``, ``sample_in_epoch`` (over all ranks), ``num_canonical_nodes``, ``shuffle_seed`` and
    ``initial_physical_nodes`` (`first_nodes`: those that the run began on) are named as in the state
    of mosaicml-streaming.
    """
    return {
        "version": VERSION,
        "epoch": epoch,
        "sample_in_epoch": sample_in_epoch,
        "initial_physical_nodes": first_nodes,
        **asdict(identity),
    }


def load(state: Mapping[str, Any], identity: Identity) -> tuple[int, int]:
    """Return the epoch and the step at which a run continues.

    A state without ``version`` is taken as one of mosaicml-streaming, which has less to compare.

    Raises:
        StateError: If the state is malformed, or was not saved by a run with this identity; the
            message names what differs.
    """
    version = state.get("version")
    if version not in (None, VERSION):
        raise StateError(f"the state has version {version!r}; this streamplug loads {VERSION}")
    for key in ("epoch", "sample_in_epoch"):
        value = state.get(key)
        if type(value) is not int or not 0 <= value < _LIMIT:
            raise StateError(f"the state has {key}={value!r:.60}; expected a whole number")
    ours = asdict(identity)
    keys = ours if version else ("num_canonical_nodes", "shuffle_seed")
    differing = [
        f"{key}: saved {state.get(key)!r}, now {ours[key]!r}"
        for key in keys
        if state.get(key) != ours[key]
    ]
    if differing:
        raise StateError("the state is of another run: " + "; ".join(differing))
    step, rest = divmod(state["sample_in_epoch"], identity.global_batch)
    if rest:
        raise StateError(
            f"the state is at sample {state['sample_in_epoch']}, inside a global batch of "
            f"{identity.global_batch} samples; states are taken between global batches"
        )
    return state["epoch"], step
