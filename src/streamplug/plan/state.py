"""The state of a run as a dict: written, checked and read, also those of earlier versions."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from streamplug.errors import ConfigError, StateError
from streamplug.plan.dataset_fingerprint import DatasetFingerprint, describe_difference
from streamplug.plan.segment import Position, Segment, check_proportions

STATE_VERSION = 2
ORDER_KEY = "order"
"""Key of the text with all that the order depends on."""

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
    position: Position,
    segments: Sequence[Segment],
    *,
    trainer_epoch: int | None = None,
    options: Mapping[str, Any] | None = None,
    depends_on_world: bool = False,
) -> dict[str, Any]:
    """Return a state: whole numbers that people read, named as by mosaicml-streaming, and a text of JSON.

    Its keys are the same for all states of a run, and its values on all ranks, so that checkpoints that store
    each key by itself, and load them in place, keep it whole.

    Args:
        identity: What the order depends on.
        position: The position.
        segments: The segments that hold at the position or before it.
        trainer_epoch: Epoch of the trainer in which the position was reached; None if it named none.
        options: Options of the data set, for tools that open it by a state.
        depends_on_world: See `Planner`.
    """
    values = identity.to_state()
    numbers = {key: values.pop(key) for key in ("num_canonical_nodes", "shuffle_seed")}
    details, origin = identity.fingerprint, segments[0].world
    optional = {
        "initial_world": [origin.nodes, origin.ranks_per_node] if depends_on_world else None,
        "segments": _describe_segments(segments, identity) or None,
        "trainer_epoch": trainer_epoch if position.done else None,
    }
    order = {**(options or {}), **values, **(details.to_state() if details else {})}
    order |= {name: value for name, value in optional.items() if value is not None}
    return {
        "version": STATE_VERSION,
        "epoch": position.epoch,
        identity.position_key: position.done,
        "initial_physical_nodes": origin.nodes,
        **numbers,
        ORDER_KEY: json.dumps(order, separators=(",", ":")),
    }


def _describe_segments(
    segments: Sequence[Segment], identity: OrderIdentity
) -> list[dict[str, Any]]:
    """Return the changes with which segments begin, as JSON values."""
    described, global_batch = [], identity.global_batch or identity.micro_batches
    for segment in segments:
        changes: dict[str, Any] = {}
        if segment.global_batch != global_batch:
            changes["global_batch"] = global_batch = segment.global_batch
        if segment.proportions is not None:
            changes["proportions"] = list(segment.proportions)
            if not segment.by_hand:
                changes["planned"] = True
        if changes:
            start = {"epoch": segment.start.epoch, "done": segment.start.done}
            described.append({**start, **changes})
    return described


def unpack(saved: Any) -> dict[str, Any]:
    """Return the values of a state by name, whatever version wrote it.

    Raises:
        StateError: If it is no state, or its text is damaged.
    """
    if not isinstance(saved, Mapping):
        raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
    values, text = {**saved}, saved.get(ORDER_KEY)
    version = saved.get("version")
    if version is not None and (type(version) is not int or not 1 <= version <= STATE_VERSION):
        raise StateError(
            f"the state has version {reprlib.repr(version)}; this streamplug loads 1 to {STATE_VERSION}"
        )
    if version is None and text is not None:
        raise StateError("the state has no version: it is truncated, or was changed")
    if version != STATE_VERSION:
        return values
    try:
        order = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        order = None
    if not isinstance(order, dict):
        raise StateError(
            f"the state has {ORDER_KEY}={reprlib.repr(text)}; expected the text that state_dict() returned: "
            "it is truncated, or was changed"
        )
    return {**order, **{key: value for key, value in values.items() if key != ORDER_KEY}}


def load(values: Mapping[str, Any], identity: OrderIdentity) -> Position:
    """Return the position of a state, see `unpack`, or raise StateError naming differences.

    A state without ``version`` is treated as one of mosaicml-streaming, which has fewer values to compare.
    """
    version = values.get("version")
    if version is None and values.get("epoch") == -1:
        # mosaicml-streaming saves this before the first batch, and begins anew when it loads it.
        values = {**values, "epoch": 0, "sample_in_epoch": 0}
    done = _read_position(values)
    keys = [*identity.to_state()] if version else ["num_canonical_nodes", "shuffle_seed"]
    if differences := describe_differences(values, identity, [*keys, "batch_budget"]):
        raise StateError(f"the state is of another run: {differences}")
    if not version and (identity.micro_batches or "batch_in_epoch" in values):
        raise StateError(
            "the state has no version, as one of mosaicml-streaming, whose batches all have one size; this "
            "run, or the state, has batches that vary in size"
        )
    if not version and done >= identity.epoch_size:
        done += -done % identity.global_batch  # the last batch may be short
    return Position(values["epoch"], done)


def describe_differences(
    values: Mapping[str, Any], identity: OrderIdentity, keys: Iterable[str]
) -> str:
    """Describe in which of some keys the identity in a state differs; the text is empty if in none."""
    current = identity.to_state()
    return "; ".join(
        _describe_shards(values, identity)
        if key == "shards"
        else describe_difference(
            key, values.get(key), current.get(key), VALUE_MEANINGS.get(key, "")
        )
        for key in dict.fromkeys(keys)
        if values.get(key) != current.get(key)
    )


def read_segments(
    values: Mapping[str, Any],
    first: Segment,
    sizes: Sequence[int],
    position_of: Callable[[int, Sequence[Segment]], Position],
) -> list[Segment]:
    """Return the segments of a state.

    Args:
        values: The state, see `unpack`.
        first: The segment with which its run began.
        sizes: Number of samples of each stream.
        position_of: Returns the position before a global batch of the run, see `Planner.position_of`.

    Raises:
        StateError: If they are invalid, or incomplete.
    """
    is_current = values.get("version") == STATE_VERSION
    described = values.get("segments", []) if is_current else _old_changes(values)
    segments = [first]
    try:
        if not isinstance(described, list):
            raise TypeError(f"expected a list, not {type(described).__name__}")
        for change in described:
            latest = segments[-1]
            new = _read_segment(
                change,
                latest,
                sizes,
                None if is_current else position_of(_count(change, "step"), segments),
            )
            _check_follows(new, latest, is_first=len(segments) == 1)
            segments[-1 if new.start == latest.start else len(segments) :] = [new]
    except (TypeError, KeyError, AttributeError, ConfigError) as error:
        raise StateError(
            f"the state's segments {reprlib.repr(described)} are invalid: {reprlib.repr(error)}"
        ) from None
    return segments


def _check_follows(new: Segment, latest: Segment, *, is_first: bool) -> None:
    """Raise `ConfigError` unless a segment begins between two global batches of the one before it."""
    before, start = latest.start, new.start
    if start < before or (start == before and not is_first):
        raise ConfigError(f"its changes are not in order, at {start}")
    done = start.done - (before.done if before.epoch == start.epoch else 0)
    if done % latest.global_batch:
        raise ConfigError(f"{start} is inside a global batch of {latest.global_batch}")


def _read_segment(
    change: Mapping[str, Any], latest: Segment, sizes: Sequence[int], start: Position | None
) -> Segment:
    """Return the segment that begins with a change; `start` is for states that have none."""
    if not {"proportions", "global_batch"} & change.keys():
        raise KeyError("proportions")
    new = replace(
        latest,
        start=start or Position(_count(change, "epoch"), _count(change, "done")),
        global_batch=_count(change, "global_batch", latest.global_batch, lowest=1),
    )
    if "proportions" not in change:
        return new
    is_planned = change.get("planned", False)
    if type(is_planned) is not bool:
        raise ConfigError(f"planned={reprlib.repr(is_planned)}: expected true or false")
    proportions = check_proportions(change["proportions"], sizes)
    return replace(new, proportions=proportions, by_hand=not is_planned)


def _old_changes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of proportions of a state of version 1, by the step of the run."""
    past, count = values.get("curriculum"), values.get("curriculum_changes")
    number = len(past) if isinstance(past, list) else 0
    if count not in (None, number):
        # Checkpoints by key loaded only the keys that the state of a new run had.
        raise StateError(
            f"the state has {number} of {count!r:.20} changes of its curriculum: it was not loaded whole; "
            "save it as one value, such as json.dumps(state)"
        )
    if past is None:
        return []
    try:
        return [{**change, "planned": change.get("by_hand") is not True} for change in past]
    except (TypeError, AttributeError) as error:
        raise StateError(
            f"the state's curriculum {reprlib.repr(past)} is invalid: {error}"
        ) from None


def _count(values: Mapping[str, Any], key: str, default: int | None = None, lowest: int = 0) -> int:
    """Return a whole number of a state; raise `ConfigError` if it is none."""
    value = values.get(key, default)
    if type(value) is not int or not lowest <= value < MAX_COUNT:
        raise ConfigError(f"{key}={reprlib.repr(value)}: expected a whole number from {lowest}")
    return value


def read_trainer_epoch(state: Mapping[str, Any]) -> int | None:
    """Return the epoch of the trainer in which it saved a state; None if it did not name its epochs."""
    epoch = state.get("trainer_epoch")
    if epoch is not None and (type(epoch) is not int or not 0 <= epoch < MAX_COUNT):
        raise StateError(
            f"the state has trainer_epoch={reprlib.repr(epoch)}; expected a whole number"
        )
    return epoch


def check_between_steps(
    position: Position, segment: Segment, identity: OrderIdentity, units_per_step: int
) -> None:
    """Raise `StateError` if a position is within a step.

    Args:
        position: The position.
        segment: The segment that holds there.
        identity: What the order depends on.
        units_per_step: Units of a step over all ranks.
    """
    size = segment.global_batch
    if size % units_per_step:
        raise StateError(
            f"the state is of steps of {size} batches, which cannot be divided among {units_per_step} ranks; "
            "use a number of ranks that divides it"
        )
    start = segment.start.done if segment.start.epoch == position.epoch else 0
    if (position.done - start) % units_per_step:
        inside = (
            f"batch {position.done}, inside a step of {units_per_step} batches"
            if identity.micro_batches
            else f"sample {position.done}, inside a global batch of {units_per_step} samples"
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
