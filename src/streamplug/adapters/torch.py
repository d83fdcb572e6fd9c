"""What torch users see: the data set as an IterableDataset, and a loader with exact state."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from streamplug import dataset
from streamplug.clock import CELLS, TICKETS, EpochClock, Loop
from streamplug.config import detect_world
from streamplug.errors import ConfigError
from streamplug.fetch import observe
from streamplug.run import Run
from streamplug.types import World


class StreamingDataset(dataset.StreamingDataset, IterableDataset):  # type: ignore[type-arg]  # noqa: D101 - below
    __doc__ = dataset.StreamingDataset.__doc__

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Workers share such memory under fork and spawn, and it has no name to be left behind.
        cells = torch.zeros(CELLS + observe.CELLS, dtype=torch.int64)
        cells.numpy()[CELLS:] = self._watch.observer.counters.cells
        self._share(cells.share_memory_(), None, os.getpid())  # type: ignore[no-untyped-call]

    def _share(self, cells: torch.Tensor, sets: int | None, home: int) -> None:
        """Count epochs, and what else happens, in memory that all workers see."""
        self._cells = cells
        self._run.clock = EpochClock(cells.numpy()[:CELLS], sets)
        self._watch.observer.counters.use(cells.numpy()[CELLS:], home)

    def _found_world(self) -> World:
        if self._given_world is not None:
            return self._given_world
        group = torch.distributed
        if "WORLD_SIZE" not in os.environ and group.is_available() and group.is_initialized():
            ranks, launched = group.get_world_size(), World()
            if "RANK" not in os.environ:
                launched = detect_world()
            # Without a launcher's word on the nodes of these ranks, they count as one node's.
            nodes = launched.nodes if launched.ranks == ranks else 1
            return World(nodes, ranks // nodes, rank=group.get_rank())
        return detect_world()

    def _place(self) -> tuple[World, Loop]:
        world, worker = self._world(), get_worker_info()
        if worker is None:
            return world, Loop()
        place = World(world.nodes, world.ranks_per_node, worker.num_workers, world.rank, worker.id)
        # torch draws a seed for each loop over a loader and adds the worker's number. Who seeds torch
        # before each loop gets the same again, but never the same processes.
        ticket = 1 + (worker.seed - worker.id) % (TICKETS - 1)
        process = int(multiprocessing.current_process()._identity[-1]) - worker.id
        return place, Loop(ticket, worker.id, worker.num_workers, process)

    def __getstate__(self) -> dict[str, Any]:
        # The cells travel beside, so that torch shares them rather than copying them.
        home = self._watch.observer.counters.home
        more = {"cells": self._cells, "sets": self._run.clock.sets, "home": home}
        return super().__getstate__() | more

    def _portable(self) -> dict[str, Any]:
        portable = super()._portable()
        del portable["_cells"]
        return portable

    def __setstate__(self, saved: dict[str, Any]) -> None:
        super().__setstate__(saved)
        cells, home = saved["cells"], saved["home"]
        if not cells.is_shared():  # a copy that somebody else made counts for itself
            cells, home = cells.clone().share_memory_(), os.getpid()
            cells[CELLS:] = 0
        self._share(cells, saved["sets"], home)


class StreamingDataLoader(DataLoader):  # type: ignore[type-arg]
    """A torch `DataLoader` that knows which batches were handed out, so that its state is exact.

    Args:
        dataset: A `StreamingDataset`.
        batch_size: Samples per batch; must be the data set's, which takes it over if it has none. None
            for the data set's.
        **kwargs: As for `torch.utils.data.DataLoader`.

    Raises:
        ConfigError: If the batch sizes differ, or batches are to come in another order.
    """

    def __init__(
        self, dataset: StreamingDataset, batch_size: int | None = None, **kwargs: Any
    ) -> None:
        dataset._run.use_batch_size(batch_size)
        if not kwargs.get("in_order", True):
            raise ConfigError("in_order=False: a state says how many batches were used, in order")
        super().__init__(dataset, batch_size=dataset._run.batch, **kwargs)
        self._version = dataset._run.version
        # Epoch, first step and batches handed out of the loop that is under way, and when it began.
        self._loop: tuple[int, int, int, int] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        run: Run = self.dataset._run  # type: ignore[attr-defined]
        if self._version != run.version:
            self._iterator = None  # persistent workers have the run as it was before
        self._version, sets = run.version, run.clock.sets
        epoch, first = run.clock.next()
        self._loop = (epoch, first, 0, sets)
        batches = super().__iter__()  # starts workers: before a thread does
        with self._line():
            for number, batch in enumerate(batches, 1):
                run.check_sets(sets)
                self._loop = (epoch, first, number, sets)
                yield batch
        self._loop = None

    def _line(self) -> AbstractContextManager[None]:
        data: StreamingDataset = self.dataset  # type: ignore[assignment]
        # Without workers the data set itself is iterated over here, and shows what it downloads.
        return data._watch.line(data._found_world(), data._remote and self.num_workers > 0)

    def state_dict(self) -> dict[str, Any]:
        """Return where the training loop stands: after the batch that was handed out last."""
        data: StreamingDataset = self.dataset  # type: ignore[assignment]
        run, world = data._run, data._world()
        if self._loop is None or self._loop[3] != run.clock.sets:
            return run.next_state(world)
        epoch, first, handed_out, _ = self._loop
        return run.state_at(world, epoch, first + handed_out)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another loader stood; see `StreamingDataset.load_state_dict`."""
        # Persistent workers may be ahead in the run as it was before.
        self._iterator = None
        self.dataset.load_state_dict(saved)  # type: ignore[attr-defined]
