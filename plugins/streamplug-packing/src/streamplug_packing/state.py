"""State of packing: the samples that were read and not yielded yet."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from streamplug.adapters import join_records
from streamplug.config import is_integer
from streamplug.errors import StateError
from streamplug.types import World

STATE_VERSION = 2
_OLD_VERSION = 1  # lists and dicts of each rank, in place of a text
_MAX_COUNT = 1 << 62


class SamplePlace(NamedTuple):
    """Where the order has a sample: its epoch, its step in that, and its sample id."""

    epoch: int
    step: int
    sample: int

    @property
    def text(self) -> str:
        """The numbers as JSON, without brackets."""
        return f"{self.epoch},{self.step},{self.sample}"


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

    @property
    def record(self) -> str:
        """Text of JSON from which `from_record` makes it again."""
        bins = [",".join([str(age), *(p.text for p in places)]) for age, places in self.bins]
        return make_record(self.epoch, self.step, (place.text for place in self.backlog), bins)

    @classmethod
    def from_record(cls, saved: Any, num_samples: int = _MAX_COUNT) -> PackingState:
        """Return the state of a parsed record, of a data set of so many samples.

        Raises:
            StateError: If it is damaged.
        """
        epoch, step, backlog, bins = _sequence(saved, 4)
        _check_count("the epoch", epoch)
        _check_count("the step", step)
        loaded_bins = []
        for bin_ in _sequence(bins):
            age, *numbers = _sequence(bin_) or [None]
            _check_count("the age of a bin", age)
            if not numbers:
                raise StateError("the state's packing has a bin without samples: it was changed")
            loaded_bins.append((age, _load_places(numbers, num_samples)))
        return cls(epoch, step, _load_places(backlog, num_samples), tuple(loaded_bins))


def make_record(epoch: int, step: int, backlog: Iterable[str], bins: Sequence[str]) -> str:
    """Return the record of a `PackingState` of texts: of samples, and of the ages and samples of bins."""
    texts = f"[{'],['.join(bins)}]" if bins else ""
    return f"[{epoch},{step},[{','.join(backlog)}],[{texts}]]"


@dataclass(frozen=True, slots=True)
class SavedPacks:
    """What a state has.

    Attributes:
        order: State of the order.
        options: Options of the packs.
        world: Place of a rank in the world that saved it.
        records: Parsed records of ranks, see `PackingState.record`; none if all packs are still to be made
            of the samples behind the position of the order.
        num_packs: Packs that the loop had yielded on each rank.
    """

    order: Mapping[str, Any]
    options: Mapping[str, Any]
    world: World
    records: Mapping[int, Any]
    num_packs: int = 0

    @classmethod
    def parse(cls, saved: Any) -> SavedPacks:
        """Parse what `to_state` returned, or the state of one rank of an earlier release.

        Raises:
            StateError: If it is damaged.
        """
        packing = saved.get("packing") if isinstance(saved, Mapping) else None
        if isinstance(packing, Mapping) and isinstance(saved.get("order"), Mapping):
            order, num_packs = saved["order"], packing.get("packs", 0)
            records = _old_record(order, packing)
        elif isinstance(packing, str):
            try:
                packing = json.loads(packing)
                records = {int(rank): record for rank, record in packing["ranks"].items()}
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise StateError(
                    f"the state has packing={saved['packing']!r:.60}, which is no text of states of packs: "
                    f"{error!r:.80}: it is truncated, or was changed"
                ) from None
            order = {name: v for name, v in saved.items() if name not in ("packing", "packs")}
            num_packs = saved.get("packs")
        else:
            raise StateError(
                "a state is what state_dict() returned, or a list of those of ranks, not "
                f"{reprlib.repr(saved)}"
            )
        _check_count("packs", num_packs)
        for name in ("nodes", "ranks_per_node"):
            _check_count(name, packing.get(name))
        try:
            world = World(packing["nodes"], packing["ranks_per_node"])
            for rank in records:
                replace(world, rank=rank)
        except ValueError as error:
            raise StateError(f"the state's packing: {error}") from None
        version = packing.get("version")
        if version not in (_OLD_VERSION, STATE_VERSION):
            raise StateError(
                f"the state is of other packs: version: {reprlib.repr(version)} in the state, "
                f"{STATE_VERSION} here"
            )
        return cls(order, packing, world, records, num_packs)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise `StateError` if the state is of packs with other options."""
        differences = [
            f"{name}: {reprlib.repr(self.options.get(name))} in the state, {value!r} here"
            for name, value in options.items()
            if self.options.get(name) != value
        ]
        if differences:
            raise StateError("the state is of other packs: " + "; ".join(differences))


def to_state(
    order: Mapping[str, Any],
    options: Mapping[str, Any],
    world: World,
    records: Mapping[int, str],
    num_packs: int,
) -> dict[str, Any]:
    """Return a state of integers and texts; the arguments are as for `SavedPacks`, records as text."""
    fields = {
        "version": STATE_VERSION,
        **options,
        "nodes": world.nodes,
        "ranks_per_node": world.ranks_per_node,
    }
    return {**order, "packs": num_packs, "packing": join_records(fields, records)}


def _old_record(order: Mapping[str, Any], packing: Mapping[str, Any]) -> dict[int, Any]:
    """Return the record of a rank's state of an earlier release."""
    _check_count("rank", packing.get("rank"))
    numbers = [order.get(key) for key in ("epoch", "sample_in_epoch", "global_batch")]
    epoch, samples, batch = (int(n) if is_integer(n) and n >= 0 else None for n in numbers)
    if epoch is None or samples is None or not batch:
        raise StateError(f"the state has order={reprlib.repr(order)}, which has no position")
    bins = [_sequence(bin_, 2) for bin_ in _sequence(packing.get("bins"))]
    flat_bins = [[age, *_flatten(places)] for age, places in bins]
    return {packing["rank"]: [epoch, samples // batch, _flatten(packing.get("backlog")), flat_bins]}


def _flatten(places: Any) -> list[Any]:
    return list(chain.from_iterable(_sequence(place, 3) for place in _sequence(places)))


def _load_places(numbers: Any, num_samples: int) -> tuple[SamplePlace, ...]:
    if len(_sequence(numbers)) % 3:
        raise StateError(
            f"the state's packing has {reprlib.repr(numbers)} where 3 numbers of each sample are expected: "
            "it is truncated, or was changed"
        )
    for number in numbers:
        _check_count("a number of a sample", number)
    for sample in numbers[2::3]:
        if sample >= num_samples:
            raise StateError(
                f"the state's packing has sample {sample}; the data set has {num_samples} samples"
            )
    return tuple(map(SamplePlace, numbers[::3], numbers[1::3], numbers[2::3]))


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
