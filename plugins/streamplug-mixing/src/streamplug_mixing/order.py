"""The orders ``per_stream``, ``stratified`` and ``device_per_stream``."""

from __future__ import annotations

from collections.abc import Sequence

from streamplug.errors import ConfigError
from streamplug.plan import Mixture, Planner, Streams, Weight
from streamplug.run import Order, OrderOptions, check_is_method
from streamplug.source import OpenSources
from streamplug_mixing.curriculum import Curriculum
from streamplug_mixing.mixture_planner import MixturePlanner


class CurriculumOrder(Order):
    """An order whose runs may have a `Curriculum`."""

    def mixture(
        self, options: OrderOptions, weights: Sequence[Weight], sizes: Sequence[int]
    ) -> Mixture:
        if options.curriculum is None:
            return super().mixture(options, weights, sizes)
        if (options.sampling_method, options.sampling_granularity) != ("balanced", 1):
            raise ConfigError(
                "curriculum= takes all of every stream: sampling_method= and sampling_granularity= have no "
                "meaning with it"
            )
        if any(weight.options for weight in weights):
            raise ConfigError(
                "curriculum= takes the place of the streams' proportion, repeat and choose"
            )
        size: int | None = options.epoch_size
        return Curriculum.parse(options.curriculum, sizes, sum(sizes) if size is None else size)


class MixtureOrder(CurriculumOrder):
    """Batches of a fixed number of samples of a mixture of streams, or of proportions that change."""

    def check(self, options: OrderOptions) -> None:
        super().check(options)
        check_is_method(options)

    def planner(self, options: OrderOptions, streams: Streams, sources: OpenSources) -> Planner:
        return MixturePlanner(streams, options.batching_method)
