"""Orders of samples by name: they make the epochs of a run."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from streamplug.errors import ConfigError
from streamplug.interfaces.plugin import Plugin
from streamplug.plan import MixturePlanner, Planner, ShardSampler, Streams
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


class MixtureOrder(Order):
    """Built-in orders: batches of a fixed number of samples of a mixture of streams."""

    def check(self, options: OrderOptions) -> None:  # noqa: D102 - see `Order`
        super().check(options)
        if options.partition_algo != "elastic":
            raise ConfigError(
                f"partition_algo={options.partition_algo!r}: it names a batching method; give it as "
                "batching_method=, with partition_algo='elastic'"
            )

    def planner(  # noqa: D102 - see `Order`
        self,
        options: OrderOptions,
        streams: Streams,
        sources: OpenSources,  # noqa: ARG002
    ) -> Planner:
        return MixturePlanner(streams, options.batching_method)
