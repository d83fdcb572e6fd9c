"""Epoch iteration over opened streams."""

from streamplug.run.exit import closed_at_exit
from streamplug.run.feed import Block, Feed, plan_blocks
from streamplug.run.hints import warn_about_own_samples, warn_about_subsets, warn_about_timeout
from streamplug.run.loop import Loop, Part
from streamplug.run.monitor import Monitor, resolve_callbacks
from streamplug.run.order import Order, OrderOptions, check_is_method
from streamplug.run.placement import Placement
from streamplug.run.random_numbers import SampleRng, ThreadRng, name_value, sample_rng, takes_rng
from streamplug.run.run import Run, RunSnapshot
from streamplug.run.session import Session
from streamplug.run.shared_epoch import CELLS, TICKETS, SharedEpoch, WorkerLoop
from streamplug.run.substitution import SubstitutionOptions

__all__ = [
    "CELLS",
    "TICKETS",
    "Block",
    "Feed",
    "Loop",
    "Monitor",
    "Order",
    "OrderOptions",
    "Part",
    "Placement",
    "Run",
    "RunSnapshot",
    "SampleRng",
    "Session",
    "SharedEpoch",
    "SubstitutionOptions",
    "ThreadRng",
    "WorkerLoop",
    "check_is_method",
    "closed_at_exit",
    "name_value",
    "plan_blocks",
    "resolve_callbacks",
    "sample_rng",
    "takes_rng",
    "warn_about_own_samples",
    "warn_about_subsets",
    "warn_about_timeout",
]
