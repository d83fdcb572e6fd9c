"""Sequences of samples from which batches are made: those of some canonical nodes each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from streamplug_mixing import Interleaving, StreamOrders, StreamSamples

from streamplug.plan import CanonicalNodes, OrderedSamples, Streams
from streamplug.types import Int64


class Sequences(ABC):
    """Samples of an epoch, or of a part of it, in some sequences.

    Attributes:
        sizes: Number of samples of each sequence.
    """

    sizes: list[int]

    @abstractmethod
    def samples(self, sequence: int, positions: Int64) -> Int64:
        """Return the sample ids at positions of a sequence, shape ``[n]``."""

    @abstractmethod
    def locate(self, sample: int) -> list[tuple[int, int]]:
        """Return sequence and position of each occurrence of a sample."""


class EpochSequences(Sequences):
    """Sequences of an epoch in one order over all streams."""

    def __init__(self, streams: Streams, epoch: int, canonical_nodes: int, count: int) -> None:
        self._arguments = streams, epoch, canonical_nodes, count
        self._nodes = CanonicalNodes(streams.epoch_size, canonical_nodes)
        self.sizes = split_evenly(streams.epoch_size, count)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._arguments

    @cached_property
    def _ordered(self) -> OrderedSamples:
        streams, epoch, canonical_nodes, _ = self._arguments
        return streams.epoch(epoch, canonical_nodes)

    def samples(self, sequence: int, positions: Int64) -> Int64:
        entries = self._nodes.entries(positions * len(self.sizes) + sequence)
        return self._ordered.samples(entries)

    def locate(self, sample: int) -> list[tuple[int, int]]:
        places = []
        for entry in self._ordered.entries(sample):
            position, sequence = divmod(self._nodes.position(entry), len(self.sizes))
            places.append((sequence, position))
        return places


class RunStreams:
    """Streams that are read pass after pass."""

    def __init__(self, streams: Streams, canonical_nodes: int) -> None:
        self._streams, self._canonical_nodes = streams, canonical_nodes

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self._streams, self._canonical_nodes)

    @cached_property
    def samples(self) -> Sequence[StreamSamples]:
        """The samples of each stream."""
        return StreamOrders(self._streams, self._canonical_nodes).repeat()

    def stream_of(self, sample: int) -> int:
        """Return the stream of a sample."""
        return int(np.searchsorted(self._streams.first_ids, sample, side="right")) - 1


@dataclass(frozen=True, slots=True)
class Continuation:
    """How the streams go on in one sequence when proportions change.

    Attributes:
        slot: Samples of the sequence before the change, from the beginning of the run.
        unread: Turns of each stream that were passed over before the change and come first after it.
        next_turns: The turn of each stream that follows them.
    """

    slot: int
    unread: tuple[Int64, ...]
    next_turns: tuple[int, ...]


class CurriculumSequences(Sequences):
    """Sequences of streams that are read pass after pass, in the proportions of one part of a run.

    Turn t of a stream in sequence s is its sample of number ``t * sequences + s``, which is of canonical node
    s if these are as many.
    """

    def __init__(
        self,
        streams: RunStreams,
        shares: Sequence[int],
        continuations: Sequence[Continuation],
        slots: Sequence[range],
    ) -> None:
        """Take slots of the run.

        Args:
            streams: The streams.
            shares: Proportion of each stream, a whole number.
            continuations: How each sequence goes on at the last change before its slots.
            slots: Slots of each sequence.
        """
        self.sizes = [len(of_sequence) for of_sequence in slots]
        self._streams, self._continuations = streams, continuations
        self._interleaving = Interleaving(shares)
        self._starts = [
            of_sequence.start - continuation.slot
            for of_sequence, continuation in zip(slots, continuations)
        ]

    def samples(self, sequence: int, positions: Int64) -> Int64:
        streams, turns = self._turns(sequence, positions)
        numbers = turns * len(self.sizes) + sequence
        ids = np.empty_like(numbers)
        for stream in np.unique(streams).tolist():
            of_stream = streams == stream
            ids[of_stream] = self._streams.samples[stream].samples(numbers[of_stream])
        return ids

    def _turns(self, sequence: int, positions: Int64) -> tuple[Int64, Int64]:
        """Return the stream of each position, and its turn in it."""
        streams, turns = self._interleaving.streams_at(positions + self._starts[sequence])
        before = self._continuations[sequence]
        for stream in np.unique(streams).tolist():
            of_stream = np.flatnonzero(streams == stream)
            unread, own = before.unread[stream], turns[of_stream]
            is_new = own >= len(unread)
            turns[of_stream[is_new]] = own[is_new] + (before.next_turns[stream] - len(unread))
            turns[of_stream[~is_new]] = unread[own[~is_new]]
        return streams, turns

    def locate(self, sample: int) -> list[tuple[int, int]]:
        stream = self._streams.stream_of(sample)
        samples, count, places = self._streams.samples[stream], len(self.sizes), []
        for sequence, (start, size) in enumerate(zip(self._starts, self.sizes)):
            first, last = (
                self._interleaving.turns_before(slot)[stream] for slot in (start, start + size)
            )
            before = self._continuations[sequence]
            unread, next_turn = before.unread[stream], before.next_turns[stream]
            found = samples.samples(unread[first:last] * count + sequence) == sample
            turns = (first + np.flatnonzero(found)).tolist()
            shift = next_turn - len(unread)
            numbers = samples.numbers(
                sample,
                (max(first, len(unread)) + shift) * count,
                (max(last, len(unread)) + shift) * count,
            )
            turns += [n // count - shift for n in numbers if n % count == sequence]
            places += [
                (sequence, self._interleaving.slot_of(stream, turn) - start) for turn in turns
            ]
        return places

    def continue_after(self, sequence: int, end: int, unread: Int64) -> Continuation:
        """Return how a sequence goes on when all positions before `end` were read but some, in order."""
        streams, turns = self._turns(sequence, unread)
        slot = self._starts[sequence] + end
        taken, before = self._interleaving.turns_before(slot), self._continuations[sequence]
        return Continuation(
            slot=before.slot + slot - len(unread),
            unread=tuple(
                np.concatenate([turns[streams == stream], earlier[used:]])
                for stream, (used, earlier) in enumerate(zip(taken, before.unread))
            ),
            next_turns=tuple(
                turn + max(used - len(earlier), 0)
                for turn, used, earlier in zip(before.next_turns, taken, before.unread)
            ),
        )


def split_evenly(size: int, count: int) -> list[int]:
    """Return the number of positions of each sequence if `size` of them take turns."""
    return [max(-(-(size - sequence) // count), 0) for sequence in range(count)]
