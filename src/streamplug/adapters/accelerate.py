"""Refusal of data sets that Accelerate divides among ranks again."""

from __future__ import annotations

import sys
from typing import Any

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError


def check_division(dataset: StreamingDataset) -> None:
    """Raise `ConfigError` if Accelerate divides among ranks what the data set has divided already.

    Each rank would get a part of its own share, or all ranks parts of the share of the first.
    """
    ranks, state = dataset.session.world.ranks, sys.modules.get("accelerate.state")
    if ranks == 1 or state is None:
        return
    # Loaders of Accelerate are there while they are iterated over.
    for loader in state.GradientState().dataloader_references:
        if loader is not None and _is_divided(dataset, loader):
            raise ConfigError(
                f"Accelerate divides a data set that is already divided among {ranks} ranks: samples of "
                "each epoch would not be read. Use StreamingDataLoader, or WebLoader for a pipeline, which "
                "accelerator.prepare() leaves as they are; a Trainer of transformers gets it from "
                "get_train_dataloader(). Or give the data set world=World(): Accelerate alone divides it then"
            )


def _is_divided(dataset: StreamingDataset, loader: Any) -> bool:
    """Return whether a loader of Accelerate reads a data set and gives each rank a part of it."""
    module: Any = sys.modules["accelerate.data_loader"]
    part, num_parts = loader, 1
    if isinstance(loader, module.DataLoaderDispatcher):
        num_parts = loader.state.num_processes
    while part is not None and part is not dataset:
        if isinstance(part, module.IterableDatasetShard):
            num_parts = part.num_processes
        part = getattr(part, "dataset", None)
    return part is dataset and num_parts > 1
