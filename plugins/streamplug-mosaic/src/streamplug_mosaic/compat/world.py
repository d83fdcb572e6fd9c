"""Processes of a node: `World`, and what they share."""

from __future__ import annotations

import logging
import sys
from typing import Any

from streamplug.config import detect_world
from streamplug.errors import ConfigError
from streamplug.types import World as ProcessPlace

_LOG = logging.getLogger("streamplug")


class World:
    """Place of a process among nodes, ranks and loader workers.

    Args:
        num_nodes: Number of nodes.
        ranks_per_node: Ranks of each node.
        workers_per_rank: Workers of each rank.
        worker: Number of this worker over all nodes.

    Attributes:
        num_nodes: Number of nodes.
        ranks_per_node: Ranks of each node.
        workers_per_rank: Workers of each rank.
        worker: Number of this worker over all nodes.
        workers_per_node: Workers of each node.
        num_ranks: Ranks of all nodes.
        num_workers: Workers of all nodes.
        node: Number of this node.
        rank: Number of this rank over all nodes.
        rank_of_node: Number of this rank on its node.
        worker_of_node: Number of this worker on its node.
        worker_of_rank: Number of this worker of its rank.
        is_multinode: Whether there are several nodes.
        is_leader: Whether this is the first worker of all.
        is_local_leader: Whether this is the first worker of its node.
    """

    def __init__(
        self, num_nodes: int, ranks_per_node: int, workers_per_rank: int, worker: int
    ) -> None:
        self.num_nodes, self.ranks_per_node = num_nodes, ranks_per_node
        self.workers_per_rank, self.worker = workers_per_rank, worker
        self.workers_per_node = ranks_per_node * workers_per_rank
        self.num_ranks = num_nodes * ranks_per_node
        self.num_workers = num_nodes * self.workers_per_node
        self.node, self.worker_of_node = divmod(worker, self.workers_per_node)
        self.rank, self.worker_of_rank = divmod(worker, workers_per_rank)
        self.rank_of_node = self.rank % ranks_per_node
        self.is_multinode = num_nodes > 1
        self.is_leader = worker == 0
        self.is_local_leader = self.worker_of_node == 0

    @classmethod
    def detect(cls) -> World:
        """Return the place of this process, from its launcher and its data loader."""
        place = detect_world()
        number, workers = _loader_worker()
        return cls(place.nodes, place.ranks_per_node, workers, place.rank * workers + number)

    def detect_workers(self) -> World:
        """Return this place with the loader workers of this process."""
        number, workers = _loader_worker()
        worker = self.rank * workers + number
        return World(self.num_nodes, self.ranks_per_node, workers, worker)

    def copy(self) -> World:
        """Return a copy."""
        return World(self.num_nodes, self.ranks_per_node, self.workers_per_rank, self.worker)

    def replicate(self, replication: int) -> World:
        """Return the place with consecutive ranks counted as one.

        Raises:
            ConfigError: If `replication` does not divide the number of ranks.
        """
        if replication <= 0:
            raise ConfigError(f"Replication factor must be positive: replication={replication}")
        if self.num_ranks % replication:
            raise ConfigError(
                f"World size must be divisible by replication={replication}: it is {self.num_ranks} ranks"
            )
        place = ProcessPlace(self.num_nodes, self.ranks_per_node, 1, self.rank).replicated(
            replication
        )
        worker = place.rank * self.workers_per_rank + self.worker_of_rank
        return World(place.nodes, place.ranks_per_node, self.workers_per_rank, worker)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return dict(self.__dict__)


def clean_stale_shared_memory() -> None:
    """Do nothing but log so: streamplug has no shared memory to clean up."""
    _LOG.warning(
        "clean_stale_shared_memory() does nothing: streamplug leaves no shared memory behind"
    )


def _loader_worker() -> tuple[int, int]:
    """Return the number of this loader worker and the number of workers; (0, 1) outside of a loader."""
    data = sys.modules.get("torch.utils.data")  # no worker of torch without it
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
