"""Samples of a data set, step by step and by their ids, and packs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np

from streamplug.dataset import MapSource, StreamingDataset
from streamplug.errors import ConfigError, DataError, DecodeError, add_note
from streamplug.run import (
    Block,
    SampleRng,
    Session,
    plan_blocks,
    takes_rng,
)
from streamplug_packing.collate import collate_pack, concatenate_arrays
from streamplug_packing.state import SamplePlace

_IDS_PER_BLOCK = 1024
_SAMPLES_PER_READ = 64
RESIZE_ERROR = (
    "resize() of a data set that is packed: load the list of the states of all ranks in the other world, or "
    "their state in a process group, which hands over the samples of open bins"
)


class PackSource:
    """Samples of a data set as this process reads them, and packs of arrays."""

    def __init__(
        self,
        dataset: StreamingDataset,
        transform: Callable[..., Any] | None,
        collate_fn: Callable[[list[Any]], Any] | None,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise ConfigError(
                f"packs are made of a streamplug.StreamingDataset, not {dataset!r:.80}"
            )
        if type(dataset).__iter__ is not StreamingDataset.__iter__:
            raise ConfigError(
                f"{type(dataset).__name__} has an __iter__ of its own: packs are resumed by reading samples "
                "by their ids"
            )
        if dataset.session.run.counts_batches:
            raise ConfigError(
                f"batching_method={dataset.batching_method!r} makes batches of varying size: packs are made "
                "of batches of a fixed number of samples"
            )
        if collate_fn is not None and not callable(collate_fn):
            raise ConfigError(
                f"collate_fn={collate_fn!r:.60}: expected a function of a list of samples"
            )
        self.dataset = dataset
        self._transform, self._collate_fn = transform, collate_fn
        self._takes_rng = transform is not None and takes_rng(transform, "transform")
        self._rng = SampleRng(self.session.run.options.shuffle_seed)

    @property
    def session(self) -> Session:
        """The session of the data set, also in a copy, where the data set has another one."""
        return self.dataset.session

    def go_to(self, order_state: Mapping[str, Any]) -> None:
        """Begin the next epoch at a position of the order."""
        self.dataset.load_state_dict(order_state)

    def read_epoch(self) -> Iterator[list[Any]]:
        """Yield the samples of each step of the next epoch."""
        samples = iter(self.dataset)
        while batch := list(islice(samples, self.session.batch)):
            yield batch

    def receive(self, places: Sequence[SamplePlace], samples: list[Any]) -> list[Any]:
        """Return what `read_epoch` has yielded as transformed samples."""
        return self.transform(places, samples)

    def transform(self, places: Sequence[SamplePlace], samples: list[Any]) -> list[Any]:
        """Return transformed samples; the places are those of the samples."""
        if (function := self._transform) is None:
            return samples
        changed = []
        for place, sample in zip(places, samples):
            try:
                changed.append(self._call_or_substitute(function, sample, place))
            except Exception as error:
                add_note(error, f"raised for {self.describe(place)}")
                raise
        return changed

    def _call_or_substitute(
        self, function: Callable[..., Any], sample: Any, place: SamplePlace
    ) -> Any:
        try:
            return self.call(function, sample, place)
        except DecodeError:
            substitution = self.session.substitution_of(place.epoch)
            if substitution is None:
                raise
            read = MapSource(self.dataset).__getitems__
            again = lambda _, samples: self.call(function, samples[0], place)  # noqa: E731
            return substitution.apply(place.step, [place.sample], read, again)

    def call(self, function: Callable[..., Any], sample: Any, place: SamplePlace) -> Any:
        """Return a sample that the function of this source has transformed."""
        return function(sample, self.rng(place)) if self._takes_rng else function(sample)

    def rng(self, place: SamplePlace) -> np.random.Generator:
        """Return the random generator of a sample; valid until the next call."""
        return self._rng.of_sample(*place)

    def read_steps(
        self, epoch: int, first: int
    ) -> Iterator[tuple[int, list[SamplePlace], list[Any]]]:
        """Yield the number, the places and the samples of each step of the next epoch, which this is."""
        steps = self._plan_steps(epoch, first)
        num_resizes = self.session.run.num_resizes
        # The epoch first: it starts workers, before this process has any thread.
        for samples in self.read_epoch():
            if self.session.run.num_resizes != num_resizes:
                raise ConfigError(RESIZE_ERROR)
            step, places = next(steps, (-1, []))
            if len(places) != len(samples):
                raise DataError(
                    f"step {step} has {len(places)} samples, but {len(samples)} were read: a data set of "
                    "packs yields each sample once"
                )
            yield step, places, self.receive(places, samples)
        if (rest := next(steps, None)) is not None:
            raise DataError(f"step {rest[0]} of epoch {epoch} and those after it were not read")

    def _plan_steps(self, epoch: int, first: int) -> Iterator[tuple[int, list[SamplePlace]]]:
        world, size = self.session.world, self.session.size
        plan = self.session.run.epoch(epoch, world)
        for block in plan_blocks(plan, world, first, _IDS_PER_BLOCK, size=size):
            for step, part in block.batches():
                yield step, [SamplePlace(epoch, step, n) for n in block.ids[part].tolist()]

    def read_places(self, places: Sequence[SamplePlace]) -> Iterator[Any]:
        """Yield transformed samples again."""
        for first in range(0, len(places), _SAMPLES_PER_READ):
            part = places[first : first + _SAMPLES_PER_READ]
            yield from self.transform(part, self._read(part))

    def _read(self, places: Sequence[SamplePlace]) -> list[Any]:
        source = MapSource(self.dataset)  # a __getitem__ of a subclass takes one id at a time
        if not self.session.substitution_options.enabled:
            return source.__getitems__([place.sample for place in places])
        by_place: dict[SamplePlace, Any] = {}
        for (epoch, step), group in groupby(sorted(set(places)), lambda place: place[:2]):
            in_step = list(group)
            block = Block.of_batch(step, [place.sample for place in in_step])
            substitution = self.session.substitution_of(epoch)
            if substitution is not None:
                samples = substitution.read_batch(
                    block, lambda block: source.__getitems__(block.ids.tolist())
                )
                by_place.update(zip(in_step, samples))
        return [by_place[place] for place in places]

    def describe(self, place: SamplePlace) -> str:
        """Return where a sample is stored and when it is read."""
        return self.session.describe(place.sample, place.epoch, place.step)

    def collate(self, samples: list[Any], sizes: list[int], sample_ids: list[int]) -> Any:
        """Return a pack."""
        if self._collate_fn is not None:
            return self._collate_fn(samples)
        return collate_pack(samples, sizes, sample_ids, concatenate_arrays)
