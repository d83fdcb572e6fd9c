"""How fast a loop over a loader could be if its step took no time: its latest batches are read once more."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError

if TYPE_CHECKING:
    from streamplug.adapters.torch import StreamingDataLoader

_MIN_STEPS = 2


@dataclass(frozen=True, slots=True)
class Headspace:
    """Rates of the fastest possible loop, and of the loop itself.

    Attributes:
        batches_per_second: Of a loop over the same batches that does nothing with them.
        samples_per_second: The samples of these.
        loop_batches_per_second: Of the loop, from its first batch to its last one so far.
        loop_samples_per_second: The samples of these.
    """

    batches_per_second: float
    samples_per_second: float
    loop_batches_per_second: float
    loop_samples_per_second: float

    @property
    def factor(self) -> float:
        """The fastest rate divided by that of the loop; near 1 if data limits it, and not the model."""
        return self.batches_per_second / self.loop_batches_per_second


def measure_headspace(loader: StreamingDataLoader, steps: int) -> Headspace:
    """Measure the rates of a loader; see `StreamingDataLoader.headspace`."""
    steps = whole_number("steps", steps, _MIN_STEPS) or _MIN_STEPS
    session = loader.dataset.session
    loop, world = session.run.latest, session.world
    if loop is None or loop.num_steps < _MIN_STEPS:
        raise _too_few()
    plan = session.run.epoch(loop.epoch, world)
    end = plan.steps(world) if loop.is_complete else loop.step
    # Batches that were made before the first one was asked for are not those of a loop that runs on.
    ahead = 2 * max(loader.num_workers, 1)
    count = min(steps + ahead, loop.num_steps, end)
    ahead = min(ahead, count // 2)
    first = end - count
    batches = iter(_silent_copy(loader, session.state_at(loop.epoch, first)))
    num_read, began = 0, perf_counter()
    # Fewer if the last batch is dropped, or an `__iter__` of its own drops samples.
    for num_read, _ in enumerate(islice(batches, count), 1):
        if num_read == ahead:
            began = perf_counter()
    seconds = perf_counter() - began
    batches.close()
    measured = np.arange(first + ahead, first + num_read)
    if not len(measured):
        raise _too_few()
    samples = len(plan.ids(world, measured)[0]) / len(measured)
    rate, own_rate = len(measured) / seconds, (loop.num_steps - 1) / loop.clock.seconds_from_first
    return Headspace(rate, rate * samples, own_rate, own_rate * samples)


def _too_few() -> ConfigError:
    return ConfigError(
        f"headspace() reads the latest batches of a loop once more, and it needs {_MIN_STEPS} of them: "
        "call it in a loop, or after one"
    )


def _silent_copy(loader: StreamingDataLoader, state: Mapping[str, Any]) -> StreamingDataLoader:
    """Return a loader over a copy of the data set at a state, whose workers end with each loop."""
    copied, dataset = copy(loader), copy(loader.dataset)
    dataset.session.monitor.silence()
    dataset.load_state_dict(state)
    # Torch forbids to set some of them.
    vars(copied).update(dataset=dataset, persistent_workers=False, _iterator=None, _pool=None)
    return copied
