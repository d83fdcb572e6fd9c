"""What torch users see: the data set as an IterableDataset, and a loader with exact state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from streamplug import dataset
from streamplug.clock import CELLS, TICKETS, EpochClock
from streamplug.config import detect_world
from streamplug.types import World


class StreamingDataset(dataset.StreamingDataset, IterableDataset):  # type: ignore[type-arg]  # noqa: D101 - below
    __doc__ = dataset.StreamingDataset.__doc__

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Workers share such memory under fork and spawn, and it has no name to be left behind.
        self._cells = torch.zeros(CELLS, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._run.clock = EpochClock(self._cells.numpy())

    def _world(self) -> World:
        if self._given_world is not None:
            return self._given_world
        group = torch.distributed
        if "WORLD_SIZE" not in os.environ and group.is_available() and group.is_initialized():
            # Without a launcher's word on nodes, all ranks count as one node's.
            return World(ranks_per_node=group.get_world_size(), rank=group.get_rank())
        return detect_world()

    def _place(self) -> tuple[World, int]:
        world, worker = self._world(), get_worker_info()
        if worker is None:
            return world, 0
        place = World(world.nodes, world.ranks_per_node, worker.num_workers, world.rank, worker.id)
        # torch draws a seed for each loop over a loader and adds the worker's number.
        return place, 1 + (worker.seed - worker.id) % (TICKETS - 1)

    def __getstate__(self) -> dict[str, Any]:
        # The cells travel beside, so that torch shares them rather than copying them.
        return super().__getstate__() | {"cells": self._cells}

    def _portable(self) -> dict[str, Any]:
        portable = super()._portable()
        del portable["_cells"]
        return portable

    def __setstate__(self, saved: dict[str, Any]) -> None:
        super().__setstate__(saved)
        self._cells = saved["cells"]
        self._run.clock = EpochClock(self._cells.numpy())


class StreamingDataLoader(DataLoader):  # type: ignore[type-arg]
    """A torch `DataLoader` that knows which batches were handed out, so that its state is exact.

    Args:
        dataset: A `StreamingDataset`.
        batch_size: Samples per batch; must be the data set's, which takes it over if it has none.
        **kwargs: As for `torch.utils.data.DataLoader`.

    Raises:
        ConfigError: If the batch sizes differ.
    """

    def __init__(
        self, dataset: StreamingDataset, batch_size: int | None = 1, **kwargs: Any
    ) -> None:
        dataset._run.use_batch_size(batch_size)
        super().__init__(dataset, batch_size=batch_size, **kwargs)
        self._handed_out: int | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._handed_out = 0
        for batch in super().__iter__():
            self._handed_out += 1
            yield batch
        self._handed_out = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the training loop stands: after the batch that was handed out last."""
        data: StreamingDataset = self.dataset  # type: ignore[assignment]
        world = data._world()
        if self._handed_out is None:
            return data._run.next_state(world)
        samples = self._handed_out * data._run.batch * world.ranks
        return data._run.state_after(samples, world, from_beginning=False)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another loader stood; see `StreamingDataset.load_state_dict`."""
        # Persistent workers have the run as it was before, and may be ahead in it.
        self._iterator = None
        self.dataset.load_state_dict(saved)  # type: ignore[attr-defined]
        self._handed_out = None
