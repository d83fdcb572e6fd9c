"""State of packing: the samples that were read and not yielded yet."""

from __future__ import annotations

import json
import reprlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamplug.errors import StateError
from streamplug.types import World

STATE_VERSION = 1
_MAX_COUNT = 1 << 62


class SamplePlace(NamedTuple):
    """Where the order has a sample: its epoch, its step in that, and its sample id."""

    epoch: int
    step: int
    sample: int


@dataclass(frozen=True, slots=True)
class PackingState:
    """Samples of a rank that were read and not yielded yet.

    Attributes:
        epoch: Epoch of the first step that was not read.
        step: That step.
        backlog: Samples that are in no bin yet, in order.
        bins: Age of each open bin, see `BestFitPacker.age`, and its samples.
    """

    epoch: int
    step: int
    backlog: tuple[SamplePlace, ...] = ()
    bins: tuple[tuple[int, tuple[SamplePlace, ...]], ...] = ()

    @property
    def places(self) -> list[SamplePlace]:
        """All samples, those of the bins first."""
        return [place for _, places in self.bins for place in places] + list(self.backlog)

    def save(self, options: Mapping[str, Any], world: World) -> dict[str, Any]:
        """Return the state as JSON values, without the position in the order."""
        return {
            "version": STATE_VERSION,
            **options,
            **world_to_state(world),
            "rank": world.rank,
            "bins": [[age, list(map(list, places))] for age, places in self.bins],
            "backlog": list(map(list, self.backlog)),
        }


def rank_checksum(saved: Mapping[str, Any]) -> int:
    """Return a checksum of what differs between the states of ranks.

    `torch.distributed.checkpoint` keeps each value of a state from any one of the ranks.
    """
    order, packing = saved["order"], saved["packing"]
    position = [order[name] for name in ("epoch", "sample_in_epoch")]
    own = [packing[name] for name in ("rank", "bins", "backlog")]
    return zlib.crc32(json.dumps([position, own]).encode())


def check_rank_checksum(saved: Mapping[str, Any]) -> None:
    """Raise `StateError` if a state has values of several ranks; those of earlier releases pass."""
    checksum = saved["packing"].get("checksum")
    if checksum is not None and checksum != rank_checksum(saved):
        raise StateError(
            "the state has values of several ranks, or was changed: each rank has a state of its own. Save "
            "the states of all ranks as one value, such as json.dumps([...]), and load the list of them"
        )


def world_to_state(world: World) -> dict[str, int]:
    """Return what the part of a rank depends on."""
    return {"nodes": world.nodes, "ranks_per_node": world.ranks_per_node}


def world_of_state(saved: Mapping[str, Any]) -> World:
    """Return the place of the rank that saved a state."""
    names = ("nodes", "ranks_per_node", "rank")
    for name in names:
        _check_count(f"packing.{name}", saved.get(name))
    try:
        return World(**{name: saved[name] for name in names})
    except ValueError as error:
        raise StateError(f"the state's packing: {error}") from None


def load_samples(
    saved: Mapping[str, Any], options: Mapping[str, Any], samples: int, epoch: int, step: int
) -> PackingState:
    """Return a state of packing with these options, of a data set of so many samples, at a position.

    Raises:
        StateError: If it is damaged, of another version, or of other options.
    """
    expected = {"version": STATE_VERSION, **options}
    differences = [
        f"{name}: {reprlib.repr(saved.get(name))} in the state, {value!r} here"
        for name, value in expected.items()
        if saved.get(name) != value
    ]
    if differences:
        raise StateError("the state is of other packs: " + "; ".join(differences))
    bins, backlog = _sequence(saved.get("bins")), _sequence(saved.get("backlog"))
    loaded_bins = []
    for bin_ in bins:
        age, places = _sequence(bin_, 2)
        _check_count("the age of a bin", age)
        if not _sequence(places):
            raise StateError("the state's packing has a bin without samples: it was changed")
        loaded_bins.append((age, _load_places(places, samples)))
    return PackingState(epoch, step, _load_places(backlog, samples), tuple(loaded_bins))


def count_packs(saved: Mapping[str, Any]) -> int:
    """Return the packs that the loop of a state had yielded; 0 in a state of an earlier release."""
    count: int = saved.get("packs", 0)
    _check_count("packs", count)
    return count


def _load_places(saved: Any, samples: int) -> tuple[SamplePlace, ...]:
    places = [SamplePlace(*_sequence(place, 3)) for place in _sequence(saved)]
    for place in places:
        for value in place:
            _check_count("a number of a sample", value)
        if place.sample >= samples:
            raise StateError(
                f"the state's packing has sample {place.sample}; the data set has {samples} samples"
            )
    return tuple(places)


def _sequence(value: Any, length: int | None = None) -> Sequence[Any]:
    is_list = isinstance(value, (list, tuple))
    if not is_list or (length is not None and len(value) != length):
        raise StateError(
            f"the state's packing has {reprlib.repr(value)} where a list"
            f"{'' if length is None else f' of {length}'} is expected: it is truncated, or was changed"
        )
    return value  # type: ignore[no-any-return]  # checked above


def _check_count(what: str, value: Any) -> None:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise StateError(
            f"the state's packing has {what}={reprlib.repr(value)}; expected a whole number"
        )
