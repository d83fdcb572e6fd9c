"""What torch knows of this process: its rank in the process group, and its worker in a `DataLoader`."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.data import get_worker_info

from streamplug.adapters.rank_records import connect_to_store, next_number
from streamplug.adapters.torch_transfers import prepare_worker, share_memory
from streamplug.config import detect_world
from streamplug.run import TICKETS, Placement, WorkerLoop
from streamplug.transfer import process_number
from streamplug.types import Int64, World


class TorchPlacement(Placement):
    """Place of a process from torch's process group and its loader's worker info."""

    # Counters: workers share them under fork and spawn, and they leave no named file.
    cells: torch.Tensor

    _first: str | None = None  # see `first_value`

    def __getstate__(self) -> dict[str, Any]:
        # The data set pickles the cells separately, so that torch shares them rather than copying them.
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("cells", "_first")}

    def make_cells(self, size: int) -> Int64:
        """Return zeros that loader workers will share, shape ``[size]``."""
        self.cells = share_memory(torch.zeros(size, dtype=torch.int64))
        return self.cells.numpy()

    def detect_rank(self) -> World:
        """Return this rank's place according to its launcher, or else to the process group."""
        group, names = torch.distributed, os.environ.keys() & {"RANK", "WORLD_SIZE"}
        is_launched = len(names) == 2 or os.environ.get("WORLD_SIZE") == "1"
        if is_launched or not (group.is_available() and group.is_initialized()):
            return detect_world()
        # Lightning sets WORLD_SIZE alone. Without a number of nodes, all ranks count as one node's.
        ranks, launched = group.get_world_size(), World() if names else detect_world()
        nodes = launched.nodes if launched.ranks == ranks else 1
        return World(nodes, ranks // nodes, rank=group.get_rank())

    def first_value(self, name: str, value: str) -> str:
        """Return the value of the rank that was the first to give one, in the store of the process group.

        The store is asked once, in a group whose ranks are those of the order: a `world` that was given may
        be another one for each part of the group.
        """
        if self._first is not None:
            return self._first
        group, ranks = torch.distributed, self.rank().ranks
        if ranks == 1 or self.is_given or worker_loop().ticket or not group.is_available():
            return value
        owner: Any = group.group.WORLD
        if owner is None or group.get_world_size() != ranks:
            return value
        store = connect_to_store(group)
        if store is None:
            return value
        key = f"streamplug/{name}/{next_number(owner, name)}"
        self._first = store.compare_set(key, "", value).decode()
        return self._first

    def start_loop(self) -> None:
        """Detect this rank's place for a loop, and prepare this process if it is a worker."""
        super().start_loop()
        prepare_worker()

    def worker_loop(self) -> WorkerLoop:
        """Return the loader loop that this process works for."""
        return worker_loop()


def worker_loop() -> WorkerLoop:
    """Return the loop of a torch loader that this process works for."""
    worker = get_worker_info()
    if worker is None:
        return WorkerLoop()
    # torch draws a seed for each loop over a loader and adds the worker's number. If the user seeds
    # torch before each loop, seeds repeat, but process numbers do not.
    ticket = 1 + (worker.seed - worker.id) % (TICKETS - 1)
    process = (process_number() or 0) - worker.id
    return WorkerLoop(ticket, worker.id, worker.num_workers, process)
