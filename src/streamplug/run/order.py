"""Orders of samples by name: they make the epochs of a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from streamplug.errors import ConfigError, PluginError, prefix_errors
from streamplug.interfaces import Plugin
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
from streamplug.plugin import make
from streamplug.source import OpenSources

if TYPE_CHECKING:
    from streamplug.run.order_options import OrderOptions


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
