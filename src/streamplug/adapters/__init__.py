"""Ties to training frameworks; each in a module of its own that nothing else imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug.adapters.accelerate import check_division as check_division
    from streamplug.adapters.rank_records import RankRecords as RankRecords
    from streamplug.adapters.rank_records import connect_to_store as connect_to_store
    from streamplug.adapters.rank_records import join_records as join_records
    from streamplug.adapters.rank_records import last_position as last_position
    from streamplug.adapters.torch import StreamingDataLoader as StreamingDataLoader
    from streamplug.adapters.torch import StreamingDataset as StreamingDataset
    from streamplug.adapters.torch_batches import TransformedCollate as TransformedCollate
    from streamplug.adapters.torch_batches import own_collate as own_collate
    from streamplug.adapters.torch_collate import has_torch_dtype as has_torch_dtype
    from streamplug.adapters.torch_device import find_device as find_device
    from streamplug.adapters.torch_device import move_batches as move_batches
    from streamplug.adapters.torch_placement import TorchPlacement as TorchPlacement
    from streamplug.adapters.torch_placement import worker_loop as worker_loop
    from streamplug.adapters.torch_transfers import share_memory as share_memory
    from streamplug.adapters.torch_transform import RandomTransform as RandomTransform
    from streamplug.adapters.torch_transform import random_transform as random_transform
    from streamplug.adapters.torch_workers import Assignment as Assignment
    from streamplug.adapters.torch_workers import WorkerPool as WorkerPool
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "accelerate": "check_division",
            "rank_records": "RankRecords connect_to_store join_records last_position",
            "torch": "StreamingDataLoader StreamingDataset",
            "torch_batches": "TransformedCollate own_collate",
            "torch_collate": "has_torch_dtype",
            "torch_device": "find_device move_batches",
            "torch_placement": "TorchPlacement worker_loop",
            "torch_transfers": "share_memory",
            "torch_transform": "RandomTransform random_transform",
            "torch_workers": "Assignment WorkerPool",
        },
    )
