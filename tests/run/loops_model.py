"""What loops over one data set mean: an epoch is a list, in which each loop has an index.

A loop begins at its first `next()`, an epoch after that of the loop that was advanced last, whose place is
also that of the state. Otherwise loops know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Place = tuple[int, int]
"""An epoch, and the units of it that come before: samples over all ranks, or batches that vary in size."""

Change = tuple[Place, tuple[float, ...]]
"""Proportions of the streams, from a place on."""

END, ERROR = "end", "error"


@dataclass(eq=False)
class ModelLoop:
    """One pass: `epoch` and `done` are its place once it has begun."""

    status: str = "new"  # then "running", and "ended" by itself or "left"
    epoch: int = -1
    done: int = 0
    is_ended: bool = False  # by a change, which it finds at its next batch
    is_over: bool = False  # for the run, which does not know of a loop that cannot follow a change
    trainer: int | None = None  # epoch of the trainer in which it was advanced last

    @property
    def place(self) -> Place:
        return (self.epoch + 1, 0) if self.status == "ended" else (self.epoch, self.done)


@dataclass
class Model:
    """The loops over a data set.

    Attributes:
        units: Returns the units of an epoch for so many ranks, with these changes of the proportions.
        step: Returns how many of them a step of so many ranks has.
        follows: Whether a loop can go on after a change.
        changes: Changes of the proportions so far.
        trainer: Epoch that the trainer named last, and `start_trainer` that at `start`.
    """

    units: Callable[[tuple[Change, ...], int, int], Sequence[Any]]
    step: Callable[[int], int]
    follows: bool = True
    ranks: int = 1
    rank: int = 0
    start: Place = (0, 0)
    latest: ModelLoop | None = None
    changes: tuple[Change, ...] = ()
    trainer: int | None = None
    start_trainer: int | None = None
    has_warned: bool = False
    loops: list[ModelLoop] = field(default_factory=list)

    # -- what loops hand out ---------------------------------------------------------

    def begin(self) -> ModelLoop:
        self.loops.append(ModelLoop())
        return self.loops[-1]

    def next(self, loop: ModelLoop) -> Any:
        """Return the next batch of a loop, `END` or `ERROR`."""
        if loop.status == "new":
            (loop.epoch, loop.done), loop.status = self.next_place(), "running"
            self._advance(loop)
        if loop.status != "running":
            return END
        units = self.units(self.changes, loop.epoch, self.ranks)
        if loop.done >= len(units):
            loop.status = "ended"
            if not loop.is_ended:
                self.latest = loop
            return END
        if loop.is_ended:
            loop.status = "left"
            return ERROR
        self._advance(loop)
        before, loop.done = loop.done, loop.done + self.step(self.ranks)
        return units[before : loop.done][self.rank :: self.ranks]

    def _advance(self, loop: ModelLoop) -> None:
        self.latest, loop.trainer = loop, self.trainer

    def leave(self, loop: ModelLoop) -> None:
        loop.status = "ended" if loop.status == "ended" else "left"

    # -- places ----------------------------------------------------------------------

    def place(self) -> Place:
        """Return the place of the state."""
        return self.start if self.latest is None else self.latest.place

    def place_trainer(self) -> int | None:
        """Return the epoch of the trainer of the place of the state."""
        return self.start_trainer if self.latest is None else self.latest.trainer

    def known(self) -> tuple[Change, ...]:
        """Return the changes that the state has."""
        place = self.normal(self.place())
        return tuple(change for change in self.changes if change[0] <= place)

    def next_place(self) -> Place:
        """Return where the next loop begins."""
        return self.start if self.latest is None else (self.latest.epoch + 1, 0)

    def warns(self) -> bool:
        """Return whether `state_dict()` warns, which it does once, of another loop that may go on."""
        others = (loop for loop in self.loops if loop is not self.latest)
        warns = any(loop.status == "running" and not loop.is_over for loop in others)
        is_first, self.has_warned = warns and not self.has_warned, warns or self.has_warned
        return is_first

    # -- changes ---------------------------------------------------------------------

    def load(self, place: Place, changes: tuple[Change, ...], trainer: int | None) -> None:
        self.changes, self.trainer = changes, trainer
        self._go_to(place)

    def _go_to(self, place: Place) -> None:
        self.start, self.latest, self.has_warned = place, None, False
        self.start_trainer = self.trainer
        self._end_loops()

    def _end_loops(self, follower: ModelLoop | None = None) -> None:
        """End the loops that run but one, which follows a change."""
        for loop in self.loops:
            if loop.status == "running":
                loop.is_over |= loop is not follower
                loop.is_ended |= loop is not follower or not self.follows

    def set_epoch(self, epoch: int) -> None:
        """Begin with the epoch of a trainer, or end the epoch of a state if the trainer's was over."""
        before, self.trainer = self.place_trainer(), epoch
        place = self.next_place()
        is_over = self.normal(place) != place
        if place == (0, 0):
            if epoch:
                self._go_to((epoch, 0))
        elif (place[1] and before is not None and epoch > before) or (
            is_over and epoch != place[0]
        ):
            self._go_to((place[0] + 1, 0))

    def resize(self, ranks: int, rank: int, rewound: int) -> None:
        """Go on with other ranks, so many units before."""
        if self.latest is not None:
            if rewound:
                self.latest.done -= rewound
            self.changes = self.known()
        self.ranks, self.rank = ranks, rank
        self._end_loops(self.latest)

    def set_proportions(self, proportions: tuple[float, ...]) -> None:
        latest, place = self.latest, self.next_place()
        if latest is not None and latest.status == "running":
            place = self.normal(latest.place)
        kept = tuple(change for change in self.changes if change[0] < place)
        self.changes = (*kept, (place, proportions))
        self._end_loops(self.latest)

    def normal(self, place: Place) -> Place:
        """Return a place, the start of the next epoch for the end of one."""
        epoch, done = place
        return (epoch + 1, 0) if done >= len(self.units(self.changes, epoch, 1)) else place
