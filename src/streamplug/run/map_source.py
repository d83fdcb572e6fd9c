"""Samples of a data set by number, as loaders of other libraries ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index as as_index
from typing import Any

from streamplug.read import resolve_index, resolve_indices
from streamplug.types import Sample


class MapSource:
    """Stored samples of a data set by sample id: a map-style data set of torch, a data source of Grain.

    It has no order, ranks or state: the loader that reads it has those. It may be pickled.
    """

    def __init__(self, dataset: Any) -> None:  # a `StreamingDataset`, which is in a layer above
        self._dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples of all streams."""
        size: int = self._dataset.size
        return size

    def __getitem__(self, index: int) -> Sample:
        """Return a sample by its id; negative ones count from the end."""
        sample: Sample = self._dataset[resolve_index(as_index(index), len(self))]
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return many samples, which are read together; torch's loaders call this for each batch."""
        if self._dataset.one_by_one:
            return [self[index] for index in indices]
        samples: list[Sample] = self._dataset[resolve_indices(indices, len(self))]
        return samples

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        """Return a text that is the same for the same data: Grain compares it when it resumes."""
        identity = self._dataset.session.run.identity(self._dataset.session.world)
        return f"MapSource(size={len(self)}, shards={identity.shards!r})"
