"""`LocalDataset` with its attributes and methods in mosaicml-streaming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamplug_mosaic.compat.dataset import StreamingDataset
from streamplug_mosaic.compat.shards import Shard, check_index, get_many

if TYPE_CHECKING:
    from torch.utils.data import Dataset
else:
    try:
        from torch.utils.data import Dataset
    except ImportError:

        class Dataset:
            """Stands for the class of torch where that is not installed."""


class LocalDataset(Dataset):  # type: ignore[type-arg]  # generic in its stubs only
    """A data set on this machine: its samples by number.

    Args:
        local: Its directory.
        split: Subdirectory of it.

    Attributes:
        local: Its directory.
        split: Subdirectory of it; empty without.
    """

    def __init__(self, local: str, split: str | None = None) -> None:
        self.local, self.split = local, split or ""
        self._dataset = StreamingDataset(local=local, split=split)

    def __len__(self) -> int:
        return self.size

    @property
    def size(self) -> int:
        """Number of samples."""
        return self._dataset.size

    num_samples = size

    @property
    def shards(self) -> list[Shard]:
        """Shards, created at each access."""
        return self._dataset.shards

    def get_item(self, sample_id: int) -> Any:
        """Return a sample.

        Raises:
            SampleIndexError: If the number is out of range, or is no integer.
        """
        return self._dataset[check_index(sample_id, self.size, self._dataset.place)]

    def __getitem__(self, at: Any) -> Any:
        return get_many(self.get_item, at, self.size, self._dataset.place)

    def __iter__(self) -> Iterator[Any]:
        return (self.get_item(number) for number in range(self.size))
