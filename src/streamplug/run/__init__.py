"""Epoch iteration over opened streams."""

from streamplug.run.dataset_attributes import DatasetAttributes
from streamplug.run.exit import closed_at_exit
from streamplug.run.feed import Block, Feed, plan_blocks
from streamplug.run.hints import warn_about_own_samples, warn_about_subsets
from streamplug.run.loop import Loop, Part
from streamplug.run.map_source import MapSource
from streamplug.run.monitor import Monitor, resolve_callbacks
from streamplug.run.order import Order, check_is_method
from streamplug.run.order_options import OrderOptions
from streamplug.run.placement import Placement
from streamplug.run.random_numbers import RngIteration, SampleRng, sample_rng, takes_rng
from streamplug.run.run import Run, RunSnapshot
from streamplug.run.sample_errors import (
    describe_sample,
    get_each,
    name_value,
    note_batch,
    note_sample,
)
from streamplug.run.sample_usage import SampleUse, explain, where
from streamplug.run.session import Session
from streamplug.run.shared_epoch import CELLS, TICKETS, SharedEpoch, WorkerLoop
from streamplug.run.substitution import SubstitutionOptions

__all__ = [
    "CELLS",
    "TICKETS",
    "Block",
    "DatasetAttributes",
    "Feed",
    "Loop",
    "MapSource",
    "Monitor",
    "Order",
    "OrderOptions",
    "Part",
    "Placement",
    "RngIteration",
    "Run",
    "RunSnapshot",
    "SampleRng",
    "SampleUse",
    "Session",
    "SharedEpoch",
    "SubstitutionOptions",
    "WorkerLoop",
    "check_is_method",
    "closed_at_exit",
    "describe_sample",
    "explain",
    "get_each",
    "name_value",
    "note_batch",
    "note_sample",
    "plan_blocks",
    "resolve_callbacks",
    "sample_rng",
    "takes_rng",
    "warn_about_own_samples",
    "warn_about_subsets",
    "where",
]
