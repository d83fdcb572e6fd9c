"""The base class of pipelines: torch's `IterableDataset`, where torch is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset
else:
    try:
        from torch.utils.data import IterableDataset
    except ImportError:

        class IterableDataset:
            """Stands for the class of torch where that is not installed."""


__all__ = ["IterableDataset"]
