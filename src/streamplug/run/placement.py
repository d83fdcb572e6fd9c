"""Place of a process among nodes, ranks and workers: given, detected, or changed by `resize`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from streamplug.config import detect_world
from streamplug.errors import ConfigError
from streamplug.run.shared_epoch import WorkerLoop
from streamplug.types import Int64, World


class Placement:
    """Detects the place of this process for each loop; `world` replaces that from the launcher."""

    def __init__(self, world: World | None, replication: int, *, keep_nodes: bool) -> None:
        if world is not None and not isinstance(world, World):
            raise ConfigError(f"world={world!r:.60}: expected a streamplug.World, or None")
        self._world, self.replication, self._keep_nodes = world, replication, keep_nodes
        self._latest: World | None = None  # detected when the latest loop began
        self._sent: World | None = None  # place of the process that sent this one a copy
        self._counted: World | None = None  # place of the process that counts

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None, "_sent": self.rank()}

    def is_other_rank(self) -> bool:
        """Return whether a launcher gave this process another place than that of the process that counts."""
        detected = self.detect_rank()
        return self._world is None and detected.ranks > 1 and detected != self._counted

    def start_counting(self, size: int) -> Int64 | None:
        """Return zeros that loader workers will share, shape ``[size]``; None if there are no workers."""
        self._latest = self._counted = None
        try:
            self._counted = self.detect_rank()
        except ConfigError:
            # Lightning sets WORLD_SIZE alone, and makes the process group later; a loop without it raises.
            if "RANK" in os.environ or "WORLD_SIZE" not in os.environ:
                raise
        return self.make_cells(size)

    def make_cells(self, size: int) -> Int64 | None:  # noqa: ARG002 - for those that have workers
        """Return what `start_counting` returns."""
        return None

    def detect_rank(self) -> World:
        """Return this rank's place according to its launcher."""
        return detect_world()

    @property
    def is_given(self) -> bool:
        """Whether the world was given, or changed by `resize`, rather than detected."""
        return self._world is not None

    def first_value(self, name: str, value: str) -> str:  # noqa: ARG002 - for those that know other ranks
        """Return the value that some rank was the first to give for a name; `value` if none can be asked."""
        return value

    def worker_loop(self) -> WorkerLoop:
        """Return the loader loop that this process works for."""
        return WorkerLoop()

    def rank(self) -> World:
        """Return this rank's place, without its workers."""
        return self._world or self._latest or self._detect()

    def start_loop(self) -> None:
        """Detect this rank's place for a loop: the launcher's answer may change before the loop ends."""
        self._latest = self._world or self._detect()

    def _detect(self) -> World:
        if self._sent is None:
            return self.detect_rank()
        if self.worker_loop().ticket:  # it cannot always detect the place of its rank
            return self._sent
        detected = self.detect_rank()  # of a rank that a launcher sent the data set to
        return detected if detected.ranks > 1 else self._sent

    def change_world(self, world: World) -> None:
        """Take this rank's place in a new world."""
        self._world = replace(
            self.rank(), nodes=world.nodes, ranks_per_node=world.ranks_per_node, rank=world.rank
        )

    def merge_replicas(self, world: World) -> World:
        """Return a place in the world in which each group of replicas counts as one rank."""
        return world.replicated(self.replication, keep_nodes=self._keep_nodes)

    def plan_rank(self) -> World:
        """Return this rank's place in the planned order, where a group of replicas counts as one rank."""
        return self.merge_replicas(self.rank())

    def plan_worker(self) -> World:
        """Return `plan_rank` with this process's worker number."""
        return self._with_worker(self.plan_rank())

    def worker(self) -> World:
        """Return `rank` with this process's worker number."""
        return self._with_worker(self.rank())

    def _with_worker(self, rank: World) -> World:
        loop = self.worker_loop()
        if not loop.ticket:
            return rank
        return replace(rank, workers_per_rank=loop.workers, worker=loop.worker)


def check_workers(world: World, before: World) -> None:
    """Raise `ConfigError` if `world` is not a world, or changes the workers of a rank."""
    if not isinstance(world, World):
        raise ConfigError(f"resize({world!r:.60}): expected a streamplug.World")
    workers = world.workers_per_rank, world.worker
    if workers not in ((1, 0), (before.workers_per_rank, before.worker)):
        raise ConfigError(
            f"resize() to {workers[0]} workers per rank: the workers stay those of the loader; leave "
            "workers_per_rank= and worker= out"
        )
