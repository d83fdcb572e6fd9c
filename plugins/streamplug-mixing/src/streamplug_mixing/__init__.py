"""Batches by stream, and proportions of streams that change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_mixing.curriculum import Curriculum, CurriculumChange, whole_shares
    from streamplug_mixing.interleave import Interleaving
    from streamplug_mixing.mixture_planner import MixturePlanner
    from streamplug_mixing.order import CurriculumOrder
    from streamplug_mixing.proportion_planner import ProportionPlanner
    from streamplug_mixing.stream_orders import StreamOrders
    from streamplug_mixing.stream_samples import StreamSamples

_HOME = {
    "Curriculum": "curriculum",
    "CurriculumChange": "curriculum",
    "CurriculumOrder": "order",
    "Interleaving": "interleave",
    "MixturePlanner": "mixture_planner",
    "ProportionPlanner": "proportion_planner",
    "StreamOrders": "stream_orders",
    "StreamSamples": "stream_samples",
    "whole_shares": "curriculum",
}
"""Module of each public name."""

__all__ = [
    "Curriculum",
    "CurriculumChange",
    "CurriculumOrder",
    "Interleaving",
    "MixturePlanner",
    "ProportionPlanner",
    "StreamOrders",
    "StreamSamples",
    "whole_shares",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily: plugin discovery imports this package.
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
