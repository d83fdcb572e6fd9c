"""Packs of a data set's samples, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Generator as GeneratorType
from itertools import count
from typing import Any

from numpy.random import Generator

from streamplug.config import suggest_keywords
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.types import Sample
from streamplug_packing.handover import hand_over, latest_order, order_position, select_states
from streamplug_packing.options import PackingOptions
from streamplug_packing.source import PackSource
from streamplug_packing.state import (
    PackingState,
    check_rank_checksum,
    count_packs,
    load_samples,
    rank_checksum,
)
from streamplug_packing.stream import PackStream, Snapshot


class PackIterable:
    """What yields packs, and has their state: the methods of `PackingDataLoader` and `PackedSamples`."""

    def set_stream(
        self,
        stream: PackStream,
        move: Callable[[Iterator[Snapshot]], Iterator[Snapshot]] | None = None,
    ) -> None:
        """Yield the packs of a stream; `move` prepares them where they are used, possibly ahead of use."""
        self._stream, self._move = stream, move
        # Packs that the current loop has yielded, and those that the next one counts as yielded before.
        self._num_packs = self._resumed_packs = 0
        self._go_on(stream.state())

    def _go_on(self, state: PackingState) -> None:
        self._yielded = state
        self._running: Iterator[Snapshot] | None = None

    def __len__(self) -> int:
        """Return `packs_per_epoch`.

        Raises:
            TypeError: If it is None, as the number of packs of an epoch is not known then.
        """
        packs = self._stream.options.packs_per_epoch
        if packs is None:
            raise TypeError("the number of packs is known only with packs_per_epoch=")
        return packs

    def __iter__(self) -> Iterator[Any]:
        """Yield packs until the end of the epoch, or `packs_per_epoch` packs, or the rest after a state."""
        limit = self._stream.options.packs_per_epoch
        self._follow_dataset()
        if self._running is None:
            self._running = self._start(self._stream.packs(endless=limit is not None))
        self._num_packs, self._resumed_packs = self._resumed_packs, 0
        rest = None if limit is None else max(limit - self._num_packs, 0)
        for pack in self._take(self._running, rest):
            self._num_packs += limit is not None
            yield pack
        self._num_packs = 0

    def flush(self) -> GeneratorType[Any, None, None]:
        """Yield packs of all samples that were read and not yielded yet, to end a run or an evaluation."""
        self._follow_dataset()
        self._running = packs = self._start(self._stream.flush())
        try:
            yield from self._take(packs, None)
        finally:
            if self._running is packs:
                self._running = None

    def _start(self, packs: Iterator[Snapshot]) -> Iterator[Snapshot]:
        # A pack may have been prepared ahead of use, and not been yielded.
        if self._yielded != self._stream.state():
            self._stream.begin(self._yielded)
        return packs if self._move is None else self._move(packs)

    def _take(self, running: Iterator[Snapshot], limit: int | None) -> Iterator[Any]:
        for _ in count() if limit is None else range(limit):
            if self._running is not running:
                raise ConfigError("a state was loaded while packs were read; start another loop")
            try:
                pack, self._yielded = next(running)
            except StopIteration:
                self._go_on(self._stream.state())
                return
            except BaseException:
                # A position that was set on the data set meanwhile is where the next loop begins.
                self._stream.begin(self._yielded, self._stream.num_jumps)
                self._running = None
                raise
            yield pack

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state after the pack that was yielded last, as JSON values.

        Each rank has a state of its own.
        """
        self._follow_dataset()
        session, state = self._stream.source.session, self._yielded
        options = self._stream.options.to_state()
        # After resize(), the samples of open bins are still those of a rank of the world before.
        world = self._stream.world if state.places else session.world
        saved: dict[str, Any] = {
            "order": session.state_at(state.epoch, state.step),
            "packing": {**state.save(options, world), "packs": self._num_packs},
        }
        saved["packing"]["checksum"] = rank_checksum(saved)
        return saved

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Resume from this rank's state, or from those of all ranks.

        With `packs_per_epoch`, the next loop yields those packs that the loop of the state had left.

        Args:
            saved: This rank's state. Or a list of the states of all ranks, in any order, after the same
                number of packs: on other numbers of nodes and ranks, the samples that were not yielded yet
                are dealt to the ranks that there are now. Or a state of the data set, after which all
                samples are packed.

        Raises:
            StateError: If the state is of another order, of other packs, or of another rank, or has values of
                several ranks.
        """
        source, options = self._stream.source, self._stream.options.to_state()
        if isinstance(saved, Mapping) and "packing" not in saved:
            source.go_to(saved)
            self._stream.accept_world()
            self._begin(PackingState(*source.session.next_step()))
            self._num_packs = self._resumed_packs = 0
            return
        ranks = select_states(saved, source.session)
        size = source.session.size
        states = [
            load_samples(state["packing"], options, size, *order_position(state["order"]))
            for _, state in ranks
        ]
        if isinstance(saved, Mapping):
            check_rank_checksum(saved)
        num_packs = max(count_packs(state["packing"]) for _, state in ranks)
        before = self.state_dict()["order"]
        source.go_to(latest_order(ranks))
        worlds = [world for world, _ in ranks]
        is_own = worlds == [source.session.world]
        try:
            begin = states[0] if is_own else hand_over(list(zip(worlds, states)), source.session)
        except BaseException:
            source.go_to(before)
            self._begin(self._yielded)
            raise
        self._stream.accept_world()
        self._begin(begin)
        self._num_packs = self._resumed_packs = num_packs

    def _begin(self, state: PackingState) -> None:
        self._stream.begin(state)
        self._go_on(state)

    def _follow_dataset(self) -> None:
        """Go to the position that was set on the data set itself, if any."""
        if self._stream.is_outdated():
            position = self._stream.source.session.next_step()
            self._begin(PackingState(*position, self._yielded.backlog, self._yielded.bins))


@suggest_keywords
class PackedSamples(PackIterable):
    """Packs of a data set's samples, whose sizes are known only when they were transformed.

    Samples come in the order of the data set. Each goes into the open bin that it fills best, and a bin is
    yielded as a pack when it is full or `open_bins` bins were opened after it. What is in open bins at the
    end of an epoch is packed with samples of the next. A loop goes on where the last one ended or was left.

    Args:
        dataset: Data set to read.
        length: Largest total size of a pack.
        size: Size of a sample: a function of the transformed sample, or the name of a column whose length
            it is.
        open_bins: Number of bins that are filled at a time.
        max_samples: Largest number of samples of a pack; None for any.
        packs_per_epoch: Packs of each loop, which reads as many epochs as that takes; the first loop after a
            state was loaded yields the rest. None ends a loop where the data set's epoch ends.
        transform: Applied to each sample, a dict. Called with ``(sample)`` or ``(sample, rng)``, see
            `streamplug.sample_rng`.
        collate_fn: Makes a pack of a list of transformed samples; None returns a dict, see
            `streamplug_packing.collate.collate_pack`.

    Raises:
        ConfigError: If an argument is invalid, or the data set iterates over other samples than it has.
        DataError: While iterating, if the size of a sample is no whole number from 1 to `length`.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        *,
        length: int,
        size: str | Callable[[Any], int],
        open_bins: int = 64,
        max_samples: int | None = None,
        packs_per_epoch: int | None = None,
        transform: Callable[[Sample], Any] | Callable[[Sample, Generator], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        options = PackingOptions(length, size, open_bins, max_samples, packs_per_epoch)
        self.set_stream(PackStream(PackSource(dataset, transform, collate_fn), options))
