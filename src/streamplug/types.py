"""Types shared by several layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError

Buffer: TypeAlias = "bytes | bytearray | memoryview"
"""Bytes in memory, as compressions and storages accept them."""

Bytes1D: TypeAlias = NDArray[np.uint8]
"""A one-dimensional array of uint8."""

Int64: TypeAlias = NDArray[np.int64]
"""A one-dimensional array of int64: ids, positions, sizes."""

ColumnValues: TypeAlias = "NDArray[Any] | list[Any]"
"""The values of one column for many samples: an array where all have one shape, else a list."""

Sample: TypeAlias = "dict[str, Any]"
"""One sample: column name to decoded value."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a shard in the index.

    Attributes:
        basename: Path relative to the directory of the index, always inside it.
        bytes: Size of the file.
        hashes: Hex digest by name of the hash algorithm.
    """

    basename: str
    bytes: int
    hashes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a storage.

    Attributes:
        key: Path relative to the storage's URL.
        size: Size in bytes.
        version: Text that changes with the content, such as an ETag or a time, and is the same from `stat`
            and `list`; empty if unknown.
    """

    key: str
    size: int
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class World:
    """The position of this process among all that read one data set.

    Attributes:
        nodes: Number of machines.
        ranks_per_node: Number of ranks (one per accelerator) on each machine.
        workers_per_rank: Number of loader workers of each rank, at least 1.
        rank: Global rank of this process, in ``[0, nodes * ranks_per_node)``.
        worker: Number of this loader worker in its rank.

    Raises:
        ConfigError: If one is not a whole number, a count is below 1, or rank or worker is out of range.
    """

    nodes: int = 1
    ranks_per_node: int = 1
    workers_per_rank: int = 1
    rank: int = 0
    worker: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "workers_per_rank", "rank", "worker"):
            value: Any = getattr(self, name)  # unchecked so far
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise ConfigError(f"World({name}={value!r:.60}): must be a whole number")
            if type(value) is not int:  # states are JSON
                object.__setattr__(self, name, int(value))
        for name in ("nodes", "ranks_per_node", "workers_per_rank"):
            if getattr(self, name) < 1:
                raise ConfigError(f"World({name}={getattr(self, name)}): must be at least 1")
        if not 0 <= self.rank < self.ranks:
            raise ConfigError(f"World(rank={self.rank}): must be in [0, {self.ranks})")
        if not 0 <= self.worker < self.workers_per_rank:
            raise ConfigError(
                f"World(worker={self.worker}): must be in [0, {self.workers_per_rank})"
            )

    @property
    def ranks(self) -> int:
        """Number of ranks over all nodes."""
        return self.nodes * self.ranks_per_node

    @property
    def node(self) -> int:
        """Number of the machine of this rank."""
        return self.rank // self.ranks_per_node

    @property
    def rank_of_node(self) -> int:
        """Position of this rank on its machine, from 0."""
        return self.rank % self.ranks_per_node

    def replicated(self, by: int, *, keep_nodes: bool = False) -> World:
        """Return the world in which groups of `by` consecutive ranks count as one rank.

        Args:
            by: Ranks per group.
            keep_nodes: Whether groups stay within nodes, or cover whole nodes, if possible, so that each
                node keeps reading its own part of the data; all nodes become one if not. Otherwise nodes
                are counted as in mosaicml-streaming: each has as many groups as it had ranks, and there
                is one node if the groups do not fill nodes that way.

        Raises:
            ConfigError: If `by` does not divide the number of ranks.
        """
        if self.ranks % by:
            raise ConfigError(f"replication={by}: the {self.ranks} ranks are not groups of {by}")
        local, groups = self.ranks_per_node, self.ranks // by
        nodes = groups // local if groups % local == 0 else 1
        if keep_nodes:
            nodes = self.nodes if local % by == 0 else 1
            if by % local == 0:  # a group is a number of whole nodes
                nodes = groups
        return World(nodes, groups // nodes, self.workers_per_rank, self.rank // by, self.worker)
