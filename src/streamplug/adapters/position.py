"""Where a data set stands, for what is built on its samples and keeps a state of its own."""

from __future__ import annotations

from typing import Any

from streamplug.dataset import StreamingDataset
from streamplug.types import World


class Position:
    """Tells where a data set stands, such as to a pipeline that holds some of its samples."""

    def __init__(self, dataset: StreamingDataset) -> None:
        """Tell of `dataset`."""
        self._dataset = dataset

    @property
    def batch(self) -> int:
        """Samples of a step of one rank."""
        return self._dataset._run.batch

    @property
    def place(self) -> World:
        """Where this process stands, loader workers included."""
        return self._dataset._place()[0]

    def begin(self) -> tuple[int, int]:
        """Begin an epoch of which nothing is read; returns it and the step it begins with."""
        return self._dataset._run.begin(self._dataset._place()[1])

    def current(self) -> tuple[int, int]:
        """Return the epoch that was begun last, and the step it began with."""
        return self._dataset._run.clock.current()

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """Return the state before a step."""
        return self._dataset._run.state_at(self._dataset._world(), epoch, step)

    def next_state(self) -> dict[str, Any]:
        """Return the state before the next loop."""
        return self._dataset._run.next_state(self._dataset._world())
