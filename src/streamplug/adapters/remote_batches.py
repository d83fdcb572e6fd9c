"""A data set in two halves, for those who read its samples elsewhere: who gets which, and their values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.read import resolve_indices
from streamplug.session.sample_source import Block
from streamplug.session.session import Session
from streamplug.types import ColumnValues, Int64

_ROWS = 4096
"""About how many ids are worked out at once."""


class BatchRequest(NamedTuple):
    """A batch, before it is read.

    Attributes:
        epoch: Which epoch.
        number: Which step of it.
        ids: The samples, for `take`, shape ``[batch]``.
    """

    epoch: int
    number: int
    ids: Int64


def take(dataset: StreamingDataset, ids: Sequence[int] | Int64) -> dict[str, ColumnValues]:
    """Return samples as a batch, as `StreamingDataset.batches` would.

    Args:
        dataset: The data set; its order does not matter.
        ids: Which samples, in any order; repeats are allowed.

    Raises:
        IndexError: If there is no such sample.
    """
    return dataset.session.reader.batch(resolve_indices(np.asarray(ids), dataset.size))


def row_bytes(dataset: StreamingDataset) -> int:
    """Return about how many bytes a sample takes in its shard."""
    return dataset.session.source.row_bytes


def remote_batches(
    dataset: StreamingDataset,
    ask: Callable[[BatchRequest], Any],
    answer: Callable[[Any], Any],
    *,
    ahead: int,
    batch_size: int | None = None,
) -> Generator[Any, None, None]:
    """Yield this rank's batches of the next epoch, read by others: the order and the state stay here.

    Args:
        dataset: The data set, of which nothing but the index is read here. Its `state_dict` stands behind the
            batch that was yielded last, however many were asked for.
        ask: Has a batch read; returns what stands for it.
        answer: Returns the batch for that, waiting for it.
        ahead: How many batches to ask for before the first of them is needed.
        batch_size: Samples per batch; None for the data set's, which takes it over if it has none.

    Raises:
        ConfigError: If `ahead` has no meaning, or the batch sizes differ.
    """
    if ahead < 1:
        raise ConfigError(f"ahead={ahead}: must be 1 or more")
    session = dataset.session
    session.run.use_batch_size(batch_size)
    epoch, first, blocks = session.begin_blocks(_ROWS)
    waiting: deque[tuple[Block, Any]] = deque()
    place = session.placement.worker()
    with session.monitor.loop(epoch, first, place, fetches=False):
        for single in _singles(blocks):
            [(number, _)] = single.batches()
            waiting.append((single, ask(BatchRequest(epoch, number, single.ids))))
            if len(waiting) == ahead:
                yield from _given(session, epoch, *waiting.popleft(), answer)
        while waiting:
            yield from _given(session, epoch, *waiting.popleft(), answer)
        session.run.moved_to(epoch + 1, 0)


def _singles(blocks: Iterator[Block]) -> Iterator[Block]:
    for block in blocks:
        yield from block.split()


def _given(
    session: Session, epoch: int, block: Block, asked: Any, answer: Callable[[Any], Any]
) -> Iterator[Any]:
    batch = answer(asked)
    with session.monitor.giving(block):
        for number, _ in block.batches():
            session.run.moved_to(epoch, number + 1)
            yield batch
