"""Tally: how far a pipeline has come, so that it can go on from there.

A stage may hold samples: of a batch that is not full yet, or that is being taken apart. Where none
holds any, all that has to be known of the past is how much of the source has been used: the pipeline is at
rest. At other times it is so many outputs after such a place, and comes there again by making them once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamplug.errors import StateError

_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Place:
    """A place in what a process makes of an epoch.

    Attributes:
        used: Samples, or batches, of the source that were used when it was at rest last.
        after: Outputs made since.
        counts: What stages had counted by then, as pairs of the number of the stage and its count.
    """

    used: int = 0
    after: int = 0
    counts: tuple[tuple[int, int], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the use of the source says it all."""
        return not self.after and not self.counts

    def saved(self) -> list[Any]:
        """Return it as plain JSON values."""
        return [self.used, self.after, [list(each) for each in self.counts]]

    @classmethod
    def loaded(cls, saved: Any) -> Place:
        """Return what was saved.

        Raises:
            StateError: If nothing like it was.
        """
        try:
            used, after, counts = saved
            found = cls(used, after, tuple((at, count) for at, count in counts))
        except (TypeError, ValueError):
            raise StateError(f"the state has a place {saved!r:.80}, which means nothing") from None
        numbers = [found.used, found.after, *(n for each in found.counts for n in each)]
        if not all(type(n) is int and 0 <= n < _LIMIT for n in numbers):
            raise StateError(f"the state has a place {saved!r:.80}, which means nothing")
        return found


class Tally:
    """Counts along while a pipeline runs.

    Attributes:
        used: Samples of the source that were taken so far, of those from where the loop began.
        held: How many stages hold samples.
        counts: What stages count.
        made: Outputs handed out in this loop.
        epoch: Which epoch of the source is read; None before the first sample.
        first: The step of the source that the loop began with.
        mark: What a source notes of where it stands, and what it had noted when all was at rest.
        done: Whether the loop has ended.
    """

    def __init__(self, begin: Place) -> None:
        """Begin at a place."""
        self.used, self.held, self.made = begin.used, 0, 0
        self.counts: dict[int, int] = dict(begin.counts)
        self.epoch: int | None = None
        self.first = 0
        self.mark: Any = None
        self.rest_mark: Any = None
        self.done = False
        self._rest, self._rest_counts, self._after = begin.used, begin.counts, 0

    def moved(self) -> None:
        """Note that an output was made."""
        if self.held:
            self._after += 1
        else:
            self._rest, self._after = self.used, 0
            self._rest_counts = tuple(self.counts.items()) if self.counts else ()
            self.rest_mark = self.mark

    @property
    def place(self) -> Place:
        """Where the pipeline is after its last output."""
        return Place(self._rest, self._after, self._rest_counts)


def parts_of(saved: Mapping[str, Any]) -> list[Place]:
    """Return the places of the processes of a state; none if its source says it all.

    Raises:
        StateError: If they mean nothing.
    """
    parts = saved.get("parts", [])
    if not isinstance(parts, list):
        raise StateError(f"the state has parts={parts!r:.80}, expected a list")
    return [Place.loaded(each) for each in parts]
