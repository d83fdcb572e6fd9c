"""Ties to training frameworks; each in a module of its own that nothing else imports."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug.adapters.dtypes import has_torch_dtype as has_torch_dtype
    from streamplug.adapters.rank_records import RankRecords as RankRecords
    from streamplug.adapters.rank_records import join_records as join_records
    from streamplug.adapters.rank_records import last_position as last_position
    from streamplug.adapters.torch import StreamingDataLoader as StreamingDataLoader
    from streamplug.adapters.torch import StreamingDataset as StreamingDataset
    from streamplug.adapters.torch_batches import TransformedCollate as TransformedCollate
    from streamplug.adapters.torch_batches import own_collate as own_collate
    from streamplug.adapters.torch_device import find_device as find_device
    from streamplug.adapters.torch_device import move_batches as move_batches
    from streamplug.adapters.torch_partition import check_division as check_division
    from streamplug.adapters.torch_placement import TorchPlacement as TorchPlacement
    from streamplug.adapters.torch_placement import worker_loop as worker_loop
    from streamplug.adapters.torch_transfers import share_memory as share_memory
    from streamplug.adapters.torch_transform import RandomTransform as RandomTransform
    from streamplug.adapters.torch_transform import random_transform as random_transform
    from streamplug.adapters.torch_workers import Assignment as Assignment
    from streamplug.adapters.torch_workers import WorkerPool as WorkerPool

_HOME = {
    "Assignment": "torch_workers",
    "RandomTransform": "torch_transform",
    "RankRecords": "rank_records",
    "StreamingDataLoader": "torch",
    "StreamingDataset": "torch",
    "TorchPlacement": "torch_placement",
    "TransformedCollate": "torch_batches",
    "WorkerPool": "torch_workers",
    "check_division": "torch_partition",
    "find_device": "torch_device",
    "has_torch_dtype": "dtypes",
    "join_records": "rank_records",
    "last_position": "rank_records",
    "move_batches": "torch_device",
    "own_collate": "torch_batches",
    "random_transform": "torch_transform",
    "share_memory": "torch_transfers",
    "worker_loop": "torch_placement",
}
"""Module of each public name."""

__all__ = list(_HOME)

if not TYPE_CHECKING:  # else type checkers would accept any attribute

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
