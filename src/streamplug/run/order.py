"""`Order`: a kind of plugin that makes a planner of options and streams; the options that choose one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

from streamplug.config import check_flags, parse_count, whole_number
from streamplug.errors import ConfigError, PluginError, UnknownNameError, prefix_errors
from streamplug.interfaces import Plugin, ShuffleAlgorithm
from streamplug.plan import (
    ElasticPlanner,
    Mixture,
    Planner,
    ShardSampler,
    Streams,
    Weight,
    WeightedMixture,
    choose_per_stream,
    proportion_per_stream,
)
from streamplug.plugin import load_catalog, make
from streamplug.source import OpenSources
from streamplug.types import Int64

_LOWEST_VALUES = {
    "batch_size": 1,
    "predownload": 0,
    "replication": 1,
    "shuffle_seed": 0,
    "shuffle_block_size": 1,
    "num_canonical_nodes": 1,
    "sampling_granularity": 1,
}
"""Lowest value of each option that is a whole number."""

_MAX_BATCH_SIZE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """Validated options of the sample order, as `StreamingDataset` takes them; `epoch_size` is a number.

    `shuffle_algo` has an effect without shuffling, too: it sets the default of `num_canonical_nodes`.
    """

    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: int | None
    num_canonical_nodes: int | None
    partition_algo: str
    batching_method: str
    batch_budget: Any
    batch_size: int | None
    predownload: int | None
    replication: int | None
    epoch_size: Any
    sampling_method: str
    sampling_granularity: int
    curriculum: Mapping[int | str, Sequence[float]] | None

    def __post_init__(self) -> None:
        check_flags(shuffle=self.shuffle)
        _check_choice("sampling_method", self.sampling_method, ("balanced", "fixed"))
        _check_name("partition_algo", self.partition_algo, "expected the name of a partition")
        _check_name(
            "shuffle_algo",
            self.shuffle_algo,
            "expected the name of a shuffle; shuffle=False for none",
        )
        _check_name(
            "batching_method", self.batching_method, "expected the name of a batching method"
        )
        order = self.order()
        make("shuffle", self.shuffle_algo)  # must exist even if unused
        for name, lowest in _LOWEST_VALUES.items():
            number = whole_number(name, getattr(self, name), lowest)
            if number is None and name in ("shuffle_seed", "sampling_granularity"):
                # NumPy would draw a different seed in each process.
                raise ConfigError(f"{name}=None: must be a whole number, the same on all ranks")
            object.__setattr__(self, name, number)
        if self.batch_size is not None and self.batch_size > _MAX_BATCH_SIZE:
            raise ConfigError(f"batch_size={self.batch_size}: must be at most {_MAX_BATCH_SIZE}")
        if self.epoch_size is not None:
            object.__setattr__(self, "epoch_size", parse_count(self.epoch_size, "epoch_size"))
        if self.curriculum is not None and not self.elastic:
            raise ConfigError("curriculum= needs partition_algo='elastic'")
        order.check(self)

    @property
    def elastic(self) -> bool:
        """Whether the order is independent of the world, unlike that of mosaicml-streaming."""
        return self.order().elastic

    @property
    def used_shuffle(self) -> str | None:
        """Name of the shuffle algorithm; None without shuffling."""
        return self.shuffle_algo if self.shuffle else None

    def order(self) -> Order:
        """Return the order that the options name."""
        if self.partition_algo != "elastic":
            expected = "expected 'elastic', or an order of its own"
            with prefix_errors(f"partition_algo={self.partition_algo!r}: {expected}", PluginError):
                order: Order = make("order", self.partition_algo)
                return order
        try:
            order = make("order", self.batching_method)
        except UnknownNameError as error:
            if self.batching_method in load_catalog()["order"]:
                raise
            # A ValueError, as mosaicml-streaming raises.
            raise ConfigError(f"Invalid batching method: {error}") from None
        return order

    def shuffle_algorithm(self) -> ShuffleAlgorithm:
        """Return the shuffle algorithm."""
        algorithm: ShuffleAlgorithm = make("shuffle", self.used_shuffle or "none")
        return algorithm

    def canonical_nodes(self, nodes: int, begun_with: int | None) -> int:
        """Return the number of canonical nodes; `begun_with` is that of the loaded state, or None."""
        number: int = (
            self.num_canonical_nodes
            or begun_with
            or make("shuffle", self.shuffle_algo).default_canonical_nodes(nodes)
        )
        return number

    def check_weights(self, weights: Sequence[Weight]) -> None:
        """Raise `ConfigError` if the weights of the streams do not go with each other or the options."""
        self.order().mixture(self, weights, [1] * len(weights))

    def streams(
        self, weights: Sequence[Weight], starts: Int64, stream_shards: Sequence[int]
    ) -> Streams:
        """Return the streams of a run, for their weights and shards; see `Streams`."""
        sizes = [int(starts[last] - starts[first]) for first, last in pairwise(stream_shards)]
        return Streams(
            starts,
            stream_shards,
            self.order().mixture(self, weights, sizes),
            self.shuffle_algorithm(),
            self.shuffle,
            self.shuffle_seed,
            self.shuffle_block_size,
        )


def _check_name(option: str, value: Any, expected: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{option}={value!r:.60}: {expected}")


def _check_choice(option: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(
            f"Invalid {option.replace('_', ' ')}: {option}={value!r:.60}: choose one of {', '.join(choices)}"
        )


class Order(Plugin):
    """An order of samples, named by `partition_algo`, or by `batching_method` if that is ``"elastic"``.

    Attributes:
        elastic: Whether global batches are the same for every world, so that runs go on in others.
        sampler: Samples a part of a stream.
    """

    elastic: ClassVar[bool] = True
    sampler: ClassVar[ShardSampler] = ShardSampler()

    def check(self, options: OrderOptions) -> None:
        """Validate the options of a run before any data is read; the default refuses `batch_budget`.

        Raises:
            ConfigError: If this order cannot be used with them.
        """
        if options.batch_budget is not None:
            raise ConfigError(
                f"batch_budget= with batching_method={options.batching_method!r} and partition_algo="
                f"{options.partition_algo!r}: needs 'budget' and 'elastic'; give these, or no budget"
            )

    def mixture(
        self, options: OrderOptions, weights: Sequence[Weight], sizes: Sequence[int]
    ) -> Mixture:
        """Return what epochs take of the streams; the default refuses a `curriculum`.

        Args:
            options: Options of the run, which `check` has accepted.
            weights: Weight of each stream.
            sizes: Number of samples of each stream; 1 for each before these are known.

        Raises:
            ConfigError: If the weights do not go with each other or the options.
        """
        if options.curriculum is not None:
            raise ConfigError(
                f"curriculum= with batching_method={options.batching_method!r} and partition_algo="
                f"{options.partition_algo!r}: this order reads no streams pass after pass; leave it out"
            )
        size, seed = options.epoch_size, options.shuffle_seed
        choose = choose_per_stream(sizes, weights, size, seed, round_up_zeros=not self.elastic)
        shares = proportion_per_stream(sizes, weights, size, choose)
        return WeightedMixture(
            tuple(choose),
            options.sampling_method,
            options.sampling_granularity,
            self.sampler,
            () if self.elastic else tuple(shares),
            is_relative=all(weight.proportion is not None for weight in weights),
        )

    @abstractmethod
    def planner(self, options: OrderOptions, streams: Streams, sources: OpenSources) -> Planner:
        """Return the planner of a run's epochs.

        Args:
            options: Options of the run, which `check` has accepted.
            streams: The streams, and what an epoch takes of them.
            sources: The opened streams, for orders that depend on their samples.

        Raises:
            StreamplugError: If the order needs data that cannot be read.
        """


class RandomOrder(Order):
    """The built-in order: batches of a fixed number of samples, of all streams shuffled together."""

    def check(self, options: OrderOptions) -> None:  # noqa: D102 - see `Order`
        super().check(options)
        check_is_method(options)

    def mixture(  # noqa: D102 - see `Order`
        self, options: OrderOptions, weights: Sequence[Weight], sizes: Sequence[int]
    ) -> Mixture:
        if options.curriculum is None:
            return super().mixture(options, weights, sizes)
        return _order_of_proportions().mixture(options, weights, sizes)

    def planner(  # noqa: D102 - see `Order`
        self, options: OrderOptions, streams: Streams, sources: OpenSources
    ) -> Planner:
        # Segments say whether a run has proportions: workers and loaded states need no other planner.
        plan_proportions = partial(_plan_proportions, options, streams, sources)
        if options.curriculum is None:
            return ElasticPlanner(streams, plan_proportions)
        return plan_proportions()


def check_is_method(options: OrderOptions) -> None:
    """Raise `ConfigError` if `partition_algo` names an order that `batching_method` is for."""
    if options.partition_algo != "elastic":
        raise ConfigError(
            f"partition_algo={options.partition_algo!r}: it names a batching method; give it as "
            "batching_method=, with partition_algo='elastic'"
        )


def _plan_proportions(options: OrderOptions, streams: Streams, sources: OpenSources) -> Planner:
    return _order_of_proportions().planner(options, streams, sources)


def _order_of_proportions() -> Order:
    """Return the order of runs whose proportions change: from then on, batches have all streams.

    Raises:
        PluginError: If its distribution is not installed.
    """
    with prefix_errors("proportions that change", PluginError):
        order: Order = make("order", "stratified")
        return order
