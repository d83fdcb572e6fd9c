"""The packs of a run, one after the other, and where packing stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, TypeAlias

from streamplug.errors import ConfigError, StateError, add_note
from streamplug_packing.options import PackingOptions
from streamplug_packing.packer import BestFitPacker, Bin
from streamplug_packing.source import RESIZE_ERROR, PackSource
from streamplug_packing.state import PackingState, SamplePlace, make_record

_Item: TypeAlias = "tuple[SamplePlace, int, Any]"
"""A sample in a bin: its place, its size, and what the transform returned."""

Snapshot: TypeAlias = "tuple[Any, str]"
"""A pack, and the record of the state after it, see `PackingState.record`."""


class PackStream:
    """The packs of a run, which continue over the ends of epochs.

    It refers to no object that is iterated over: loaders end their workers late if they are in a cycle.

    Attributes:
        world: Place of the rank that read the samples of open bins.
    """

    def __init__(self, source: PackSource, options: PackingOptions) -> None:
        self.source, self.options = source, options
        self.accept_world()
        self.begin(PackingState(*source.session.next_step()))

    def begin(self, state: PackingState, num_jumps: int | None = None) -> None:
        """Go to a state; its samples are read again when the next pack is made.

        `num_jumps` is the value of `Run.num_jumps` that belongs to the state; None for the current one.
        """
        options = self.options
        self._packer: BestFitPacker[_Item] = BestFitPacker(
            options.length, options.open_bins, options.max_samples
        )
        self._backlog: deque[tuple[SamplePlace, Any]] = deque()
        self._epoch, self._step = state.epoch, state.step
        self._unread: PackingState | None = state
        self._steps: Iterator[tuple[int, list[SamplePlace], list[Any]]] | None = None
        self.num_jumps = self.source.session.run.num_jumps if num_jumps is None else num_jumps

    def accept_world(self) -> None:
        """Read in the data set's world from now on, as samples of open bins are of it, or there are none."""
        self.world = self.source.session.world

    def is_outdated(self) -> bool:
        """Return whether a position was set on the data set itself."""
        return self.source.session.run.num_jumps != self.num_jumps

    def lead_dataset(self) -> None:
        """Have the data set's next epoch begin at this position, unless an epoch is being read."""
        session, position = self.source.session, (self._epoch, self._step)
        if self._steps is None and session.next_step() != position:
            self.source.go_to(session.state_at(*position))
            self.num_jumps = session.run.num_jumps

    def record(self) -> str:
        """Return the record of the state after the last pack, see `PackingState.record`."""
        if self._unread is not None:
            return self._unread.record
        packer = self._packer
        bins = [f"{packer.age(bin_)}{bin_.texts}" for bin_ in packer.bins]
        return make_record(
            self._epoch, self._step, [place.text for place, _ in self._backlog], bins
        )

    def packs(self, *, endless: bool) -> Iterator[Snapshot]:
        """Yield packs until the end of the epoch, or forever."""
        while True:
            bin_ = self._next_bin(read=True)
            if bin_ is not None:
                yield self._emit(bin_)
            elif not endless:
                return

    def flush(self) -> Iterator[Snapshot]:
        """Yield packs of all samples that were read."""
        while (bin_ := self._next_bin(read=False) or self._packer.oldest()) is not None:
            yield self._emit(bin_)

    def _next_bin(self, *, read: bool) -> Bin[_Item] | None:
        """Return the next complete bin; None at the end of an epoch, or where steps had to be read."""
        self._read_again()
        while (bin_ := self._packer.complete()) is None:
            if self._backlog:
                # It stays in the backlog if it does not fit.
                place, sample = self._backlog[0]
                size = self._measure(place, sample)
                self._packer.add((place, size, sample), size, place.text)
                self._backlog.popleft()
            elif not (read and self._read_step()):
                return None
        return bin_

    def _measure(self, place: SamplePlace, sample: Any) -> int:
        return self.options.measure(sample, lambda: self.source.describe(place))

    def _emit(self, bin_: Bin[_Item]) -> Snapshot:
        places, sizes, samples = map(list, zip(*bin_.items))
        sample_ids = [place.sample for place in places]
        try:
            pack = self.source.collate(samples, sizes, sample_ids)
        except Exception as error:
            add_note(error, f"raised for a pack of the samples {sample_ids}")
            raise
        self._packer.bins.remove(bin_)
        return pack, self.record()

    def _read_step(self) -> bool:
        """Append the samples of the next step to the backlog; return False at the end of the epoch."""
        if self._steps is None:
            self.lead_dataset()
            if not (self._packer.bins or self._backlog):
                self.accept_world()
            elif self.world != self.source.session.world:
                raise ConfigError(RESIZE_ERROR)
            self._steps = self.source.read_steps(self._epoch, self._step)
        step = next(self._steps, None)
        if step is None:
            self._steps, self._epoch, self._step = None, self._epoch + 1, 0
            return False
        number, places, samples = step
        self._backlog.extend(zip(places, samples))
        self._step = number + 1
        return True

    def _read_again(self) -> None:
        """Read the samples of a state that was loaded."""
        state = self._unread
        if state is None:
            return
        samples = self.source.read_places(state.places)
        bins = []
        for age, places in state.bins:
            items = [(place, self._measure(place, s), s) for place, s in zip(places, samples)]
            total = sum(size for _, size, _ in items)
            if total > self.options.length:
                raise StateError(
                    f"the samples {[place.sample for place in places]} of a bin have a size of {total} now, "
                    f"more than length={self.options.length}: size= or transform= gives others than when the "
                    "state was saved"
                )
            bins.append((age, items, total, "".join(f",{place.text}" for place in places)))
        self._backlog.extend(zip(state.backlog, samples))
        for bin_ in bins:
            self._packer.restore(*bin_)
        self._unread = None
