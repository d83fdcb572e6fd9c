"""Packs of a data set's samples, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Generator as GeneratorType
from dataclasses import replace
from itertools import count
from typing import Any

from numpy.random import Generator

from streamplug.adapters import RankRecords, last_position
from streamplug.config import suggest_keywords
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from streamplug.types import Sample
from streamplug_packing.handover import check_distance, hand_over, select_records
from streamplug_packing.options import PackingOptions
from streamplug_packing.source import PackSource
from streamplug_packing.state import PackingState, SavedPacks, to_state
from streamplug_packing.stream import PackStream, Snapshot

SAME_CHANGES = (
    "set_proportions() was called at different steps of ranks; with packs_per_epoch=, load the same state of "
    "the data set on all ranks before you call it"
)


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
        self._go_on(stream.record())
        self._begin_records({})

    def _go_on(self, record: str) -> None:
        self._yielded = record  # of the state after the last pack
        self._running: Iterator[Snapshot] | None = None

    def _begin_records(self, known: Mapping[int, str] | None, start: str = "") -> None:
        """Begin anew with these records of all ranks; None if they are unknown, {} as for `SavedPacks`.

        `start` names the position that was set on the data set itself, which all ranks must have in common.
        """
        self._records = RankRecords(f"packs {self._stream.options.to_state()}")
        self._known: Mapping[int, str] | None = known
        self._dataset_start = start
        if known is None:
            self._records.connect(self._stream.source.session)
            self._publish(self._records.publish)

    def _publish(self, publish: Callable[[str], None]) -> None:
        """Tell other ranks where this one is after a pack or a loop."""
        self._known = None
        publish(f"{self._dataset_start} {self._yielded}")

    def _collect(self) -> dict[int, str]:
        """Return the records of all ranks."""
        record = f"{self._dataset_start} {self._yielded}"
        found = self._records.collect(self._stream.source.session, record)
        parts = {rank: record.partition(" ") for rank, record in found.items()}
        for rank, (start, _, _) in parts.items():
            if start != self._dataset_start:
                raise StateError(
                    f"the data set of rank {rank} was set to epoch and step {start or None}, that of this "
                    f"rank to {self._dataset_start or None}: {SAME_CHANGES}"
                )
        return {rank: record for rank, (_, _, record) in parts.items()}

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
        if self._yielded != self._stream.record():
            self._stream.begin(self._state)
        return packs if self._move is None else self._move(packs)

    def _take(self, running: Iterator[Snapshot], limit: int | None) -> Iterator[Any]:
        self._records.connect(self._stream.source.session)
        for _ in count() if limit is None else range(limit):
            if self._running is not running:
                raise ConfigError("a state was loaded while packs were read; start another loop")
            try:
                pack, self._yielded = next(running)
            except StopIteration:
                self._go_on(self._stream.record())
                self._publish(self._records.publish_end)
                return
            except BaseException:
                # A position that was set on the data set meanwhile is where the next loop begins.
                self._stream.begin(self._state, self._stream.num_jumps)
                self._running = None
                raise
            self._publish(self._records.publish)
            yield pack

    @property
    def _state(self) -> PackingState:
        """The state after the last pack."""
        return PackingState.from_record(json.loads(self._yielded))

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the pack that was yielded last, as integers and texts.

        In a process group of torch it is the same on all ranks, and each may ask for it alone. Else each rank
        has a state of its own.

        Raises:
            StateError: If another rank does not reach this pack, or is far ahead of it.
        """
        self._follow_dataset()
        stream = self._stream
        session, options = stream.source.session, stream.options.to_state()
        # After resize(), the samples of open bins are still those of a rank of the world before.
        has_samples = not self._yielded.endswith(",[],[]]")
        world = stream.world if has_samples or self._known else session.world
        if self._known is not None:
            records = self._known
        elif world == session.world:
            records = self._collect()
        else:
            records = {world.rank: self._yielded}
        order = session.state_at(*last_position(records or {world.rank: self._yielded}))
        return to_state(order, options, world, records, self._num_packs)

    def load_state_dict(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Resume from a state of all ranks, or from the states of all ranks.

        With `packs_per_epoch`, the next loop yields those packs that the loop of the state had left. On other
        numbers of nodes and ranks, the samples that were not yielded yet are dealt to the ranks that there
        are now.

        Args:
            saved: What `state_dict` returned. If ranks had states of their own: this rank's, or a list of
                those of all ranks, in any order, after the same number of packs. Or a state of the data set,
                after which all samples are packed.

        Raises:
            StateError: If the state is of another order, of other packs, or of another rank.
        """
        source = self._stream.source
        if isinstance(saved, Mapping) and "packing" not in saved:
            source.go_to(saved)
            self._stream.accept_world()
            self._begin(PackingState(*source.session.next_step()), {})
            self._num_packs = self._resumed_packs = 0
            return
        is_list = isinstance(saved, (list, tuple)) and saved
        states = [SavedPacks.parse(state) for state in (saved if is_list else [saved])]
        for state in states:
            state.check_options(self._stream.options.to_state())
        before = source.session.state_at(self._state.epoch, self._state.step)
        try:
            begin, known = self._read_states(states)
        except BaseException:
            source.go_to(before)
            self._stream.begin(self._state)
            self._running = None
            raise
        self._stream.accept_world()
        self._begin(begin, known)
        self._num_packs = self._resumed_packs = max(state.num_packs for state in states)

    def _read_states(
        self, states: Sequence[SavedPacks]
    ) -> tuple[PackingState, Mapping[int, str] | None]:
        """Go to the position of states; return where this rank begins, and the known records of all ranks."""
        source = self._stream.source
        session = source.session
        saved_world, records = select_records(states, session)
        size, own = session.size, session.world.rank
        ranks = {rank: PackingState.from_record(r, size) for rank, r in sorted(records.items())}
        is_same = saved_world == replace(session.world, rank=0)
        if is_same:
            states = [state for state in states if own in state.records] or states
        else:
            check_distance(ranks.values())
        _go_to_last(source, [state.order for state in states])
        if not ranks:
            return PackingState(*session.next_step()), {}
        if not is_same:
            worlds = [replace(saved_world, rank=rank) for rank in ranks]
            ranks = dict(enumerate(hand_over(list(zip(worlds, ranks.values())), session)))
        begin, is_whole = ranks[own], len(ranks) == session.world.ranks
        if session.next_step() != (begin.epoch, begin.step):
            source.go_to(session.state_at(begin.epoch, begin.step))
        known = {rank: state.record for rank, state in ranks.items()}
        return begin, known if is_whole else None

    def _begin(self, state: PackingState, known: Mapping[int, str] | None, start: str = "") -> None:
        self._stream.begin(state)
        self._go_on(state.record)
        self._begin_records(known, start)

    def _follow_dataset(self) -> None:
        """Go to the position that was set on the data set itself, if any."""
        if self._stream.is_outdated():
            epoch, step = self._stream.source.session.next_step()
            state = replace(self._state, epoch=epoch, step=step)
            # Another rank may have samples in open bins where this one has none.
            known = self._known if self._known == {} else None
            self._begin(state, known, f"{epoch},{step}")


def _go_to_last(source: PackSource, orders: Sequence[Mapping[str, Any]]) -> None:
    """Go to the last position of states of one order.

    Raises:
        StateError: If the proportions of its streams changed at different steps in them.
    """
    session, reached = source.session, {}
    for order in orders:
        source.go_to(order)
        position = session.next_step()
        reached[position] = order, session.state_at(*position)
    source.go_to(reached[max(reached)][0])
    if any(session.state_at(*position) != state for position, (_, state) in reached.items()):
        raise StateError(f"the states are of other proportions: {SAME_CHANGES}")


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
