"""Options of the sample order, validated before any data is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamplug.config import check_flags, whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan import BATCHING_METHODS, PartitionAlgorithm
from streamplug.plugin.registry import make


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """Validated options of the sample order; None uses the shuffle algorithm's default.

    `shuffle_algo` counts without shuffling, too: it sets the default of `num_canonical_nodes`.
    """

    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: int | None
    num_canonical_nodes: int | None
    partition_algo: str
    batching_method: str

    def __post_init__(self) -> None:
        check_choice("batching_method", self.batching_method, BATCHING_METHODS)
        if not isinstance(self.partition_algo, str):
            raise ConfigError(
                f"partition_algo={self.partition_algo!r:.60}: expected the name of a partition"
            )
        self.partition_algorithm()  # raises for unknown names
        for name, lowest in (
            ("shuffle_seed", 0),
            ("shuffle_block_size", 1),
            ("num_canonical_nodes", 1),
        ):
            number = whole_number(name, getattr(self, name), lowest)
            object.__setattr__(self, name, number)
        if self.shuffle_seed is None:  # NumPy would draw a different seed in each process
            raise ConfigError("shuffle_seed=None: must be a whole number, the same on all ranks")
        check_flags(shuffle=self.shuffle)
        if not isinstance(self.shuffle_algo, str):
            raise ConfigError(
                f"shuffle_algo={self.shuffle_algo!r:.60}: expected the name of a shuffle; "
                "shuffle=False for none"
            )
        make("shuffle", self.shuffle_algo)  # must exist even if unused

    @property
    def elastic(self) -> bool:
        """Whether the order is independent of the world, unlike that of mosaicml-streaming."""
        return self.partition_algorithm().elastic

    @property
    def used_shuffle(self) -> str | None:
        """Name of the shuffle algorithm; None without shuffling."""
        return self.shuffle_algo if self.shuffle else None

    def partition_algorithm(self) -> PartitionAlgorithm:
        """Return the algorithm that partitions epochs among ranks."""
        algorithm: PartitionAlgorithm = make("partition", self.partition_algo)
        return algorithm

    def algorithm(self) -> ShuffleAlgorithm:
        """Return the shuffle algorithm."""
        found: ShuffleAlgorithm = make("shuffle", self.used_shuffle or "none")
        return found

    def canonical_nodes(self, nodes: int, begun_with: int | None) -> int:
        """Return the number of canonical nodes; `begun_with` is that of the loaded state, or None."""
        given = self.num_canonical_nodes or begun_with
        if given:
            return given
        default: int = make("shuffle", self.shuffle_algo).default_canonical_nodes(nodes)
        return default


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless the value of option `name` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(
            f"Invalid {name.replace('_', ' ')}: {name}={value!r:.60}: choose one of {', '.join(choices)}"
        )
