"""Methods of composing batches, by name."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from streamplug.errors import ConfigError
from streamplug.interfaces.plugin import Plugin
from streamplug.plan.batch_planner import BatchPlanner
from streamplug.source import OpenSources

if TYPE_CHECKING:
    from streamplug.run.order_options import OrderOptions


class BatchingMethod(Plugin):
    """Method of composing batches, the option `batching_method` of a data set."""

    @abstractmethod
    def check(self, options: OrderOptions) -> None:
        """Validate the options of a run before any data is read.

        Raises:
            ConfigError: If this method cannot be used with them.
        """

    @abstractmethod
    def make_planner(self, options: OrderOptions, opened: OpenSources) -> BatchPlanner | None:
        """Return the planner of the batches; None for those that the plan has built in.

        Args:
            options: Options of the run, which `check` has accepted.
            opened: The streams whose samples are read.

        Raises:
            StreamplugError: If the method needs data that cannot be read.
        """


class BuiltinBatching(BatchingMethod):
    """A method of the plan: batches of a fixed number of samples."""

    def check(self, options: OrderOptions) -> None:  # noqa: D102 - see `BatchingMethod`
        if options.batch_budget is not None:
            raise ConfigError(
                f"batch_budget= with batching_method={options.batching_method!r}: give "
                "batching_method='budget', or no budget"
            )

    def make_planner(  # noqa: D102 - see `BatchingMethod`
        self,
        options: OrderOptions,  # noqa: ARG002
        opened: OpenSources,  # noqa: ARG002
    ) -> BatchPlanner | None:
        return None
