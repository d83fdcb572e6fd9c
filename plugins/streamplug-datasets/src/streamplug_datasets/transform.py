"""Base class of data sets that transform their samples, and the loop over transformed samples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import streamplug.dataset
from streamplug import StreamingDataset
from streamplug.run import Block
from streamplug.types import Sample

T = TypeVar("T")


class TransformedDataset(StreamingDataset):
    """A `StreamingDataset` whose samples are made of those that are stored, one by one.

    `batches` gives columns as they are stored.
    """

    def change(self, sample: dict[str, Any]) -> Any:
        """Return what becomes of a sample."""
        raise NotImplementedError

    def __getitem__(self, at: Any) -> Any:
        """Return one sample (an int, negative from the end) or many (a slice, list or array).

        Raises:
            IndexError: If there is no such sample.
        """
        samples: Any = super().__getitem__(at)
        return (
            [self.change(sample) for sample in samples]
            if isinstance(samples, list)
            else self.change(samples)
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's samples of the next epoch."""
        if self.one_by_one:
            yield from super().__iter__()
            return
        self.check_epoch()
        yield from map_rows(self, partial(map, self.change))

    @property
    def one_by_one(self) -> bool:
        """Whether a subclass has its own way to change samples, so that it is asked for each.

        Else they are read block by block, and changed when they are handed out.
        """
        return type(self).__getitem__ is not TransformedDataset.__getitem__


def map_rows(
    dataset: streamplug.dataset.StreamingDataset, change: Callable[[list[Sample]], Iterator[T]]
) -> Generator[T, None, None]:
    """Yield this worker's samples of the next epoch, read block by block and changed when they are yielded.

    A step is done when its last sample was changed.

    Args:
        dataset: The data set.
        change: Returns the changed samples of a block, one for each, in order.
    """
    session = dataset.session

    def read(block: Block) -> list[Sample]:
        return session.reader.rows(block.ids)

    with closing(session.read(read, session.feed.rows)) as blocks:
        for part, block, rows in blocks:
            changed = change(rows)
            for step, own in part.steps(block):
                yield from islice(changed, own.stop - own.start - 1)
                sample = next(changed)
                part.advance(step)
                yield sample
