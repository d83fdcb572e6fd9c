"""Base class of data sets that transform their samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from streamplug import StreamingDataset


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
        session = self.session
        read = lambda block: session.reader.rows(block.ids)  # noqa: E731
        with closing(session.read_epoch(read, session.source.rows)) as blocks:
            for epoch, block, rows in blocks:
                for step, part in block.batches():
                    for row in rows[part.start : part.stop - 1]:
                        yield self.change(row)
                    sample = self.change(rows[part.stop - 1])  # if it fails, the step is not done
                    session.run.set_position(epoch, step + 1, block)
                    yield sample

    @property
    def one_by_one(self) -> bool:
        """Whether a subclass has its own way to change samples, so that it is asked for each.

        Else they are read block by block, and changed when they are handed out.
        """
        return type(self).__getitem__ is not TransformedDataset.__getitem__
