"""Batches by stream, and proportions of streams that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_mixing.curriculum import Curriculum as Curriculum
    from streamplug_mixing.curriculum import CurriculumChange as CurriculumChange
    from streamplug_mixing.curriculum import whole_shares as whole_shares
    from streamplug_mixing.interleave import Interleaving as Interleaving
    from streamplug_mixing.mixture_planner import MixturePlanner as MixturePlanner
    from streamplug_mixing.order import CurriculumOrder as CurriculumOrder
    from streamplug_mixing.proportion_planner import ProportionPlanner as ProportionPlanner
    from streamplug_mixing.stream_orders import StreamOrders as StreamOrders
    from streamplug_mixing.stream_samples import StreamSamples as StreamSamples
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "curriculum": "Curriculum CurriculumChange whole_shares",
            "interleave": "Interleaving",
            "mixture_planner": "MixturePlanner",
            "order": "CurriculumOrder",
            "proportion_planner": "ProportionPlanner",
            "stream_orders": "StreamOrders",
            "stream_samples": "StreamSamples",
        },
    )
