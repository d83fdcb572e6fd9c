"""Batches that other processes read, while the order and the state stay in this one."""

from __future__ import annotations

import json
import re
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2s
from typing import Any, NamedTuple

import numpy as np

from streamplug.config import whole_number
from streamplug.dataset import StreamingDataset, resolve_indices
from streamplug.errors import DataError, StateError, StorageError
from streamplug.plugin import Registrations, registrations, restore
from streamplug.run import Block, closed_at_exit
from streamplug.source import OpenStream
from streamplug.transfer import HANDOVER
from streamplug.types import ColumnValues, Int64

_NUMBER_AT_END = re.compile(r"[0-9]+\Z")
_PLANNED_ROWS = 4096  # approximate number of sample ids planned at once


class BatchRequest(NamedTuple):
    """A batch to read."""

    epoch: int  # number of the epoch
    number: int  # step in the epoch
    ids: Int64  # sample ids for `take`, shape [batch]
    is_probe: bool = False  # whether the samples are only read, to learn whether they can be


class DatasetCopy(NamedTuple):
    """What another process needs to open a data set with the same samples; picklable.

    Attributes:
        config: Arguments of `StreamingDataset`, with the version of each view and table.
        digest: Digest of the numbers of samples of the shards, of versions, of selected rows and of columns.
        url: Location of the data set, for errors.
        registered: Plugins registered by name in this process.
    """

    config: Mapping[str, Any]
    digest: str
    url: str
    registered: Registrations

    @classmethod
    def of(cls, dataset: StreamingDataset, config: Mapping[str, Any]) -> DatasetCopy:
        """Describe an opened data set.

        Args:
            dataset: The data set.
            config: Arguments that it was opened with, and that others shall open it with. The latest version
                of a view or a table, and that of a tag, are replaced by the number of the opened version.
        """
        opened = dataset.session.streams
        versions = [
            _version_number(stream, given.version) for stream, given in zip(opened, dataset.streams)
        ]
        config = dict(config)
        if config.get("streams") is not None:
            config["streams"] = [
                stream if version is None else replace(stream, version=version)
                for stream, version in zip(config["streams"], versions)
            ]
        elif versions[0] is not None:
            config["version"] = versions[0]
        return cls(config, _digest(dataset), opened[0].where, registrations())

    def open(self) -> StreamingDataset:
        """Open the data set in this process.

        Raises:
            StateError: If its shards have other numbers of samples here, or its columns differ.
            StreamplugError: As `StreamingDataset`.
        """
        restore(self.registered)
        dataset = StreamingDataset(**self.config)
        if _digest(dataset) != self.digest:
            raise StateError(
                f"{socket.gethostname()} finds other samples or columns in {self.url} than the process that "
                "plans the batches: it was changed meanwhile, or is another data set on that machine; "
                "restart the run, with a location that all machines share"
            )
        return dataset


def _version_number(opened: OpenStream, given: int | str | None) -> int | None:
    """Return the number of an opened version, such as that of ``version 3``, for `given`.

    None if there are no versions, or other columns are read by this number: a table of Iceberg may have
    columns that its latest snapshot does not have yet.
    """
    match = _NUMBER_AT_END.search(opened.version)
    if match is None:
        return None
    number, recorded = int(match[0]), opened.stream
    is_table = recorded.version == number != given
    is_other = is_table and _columns(recorded.open()) != _columns(opened)
    return None if is_other else number


def _columns(opened: OpenStream) -> list[tuple[str, str]]:
    schemas = opened.index.schemas
    return [(column.name, column.spec) for schema in schemas for column in schema.columns]


def _digest(dataset: StreamingDataset) -> str:
    opened = dataset.session.streams
    columns = blake2s(json.dumps([_columns(stream) for stream in opened]).encode(), digest_size=8)
    return f"{dataset.make_fingerprint(opened).digest}-{columns.hexdigest()}"


def take(dataset: StreamingDataset, ids: Sequence[int] | Int64) -> dict[str, ColumnValues]:
    """Return samples as a batch, as `StreamingDataset.batches` does.

    Args:
        dataset: The data set; its order is ignored.
        ids: Sample ids in any order; repeats are allowed.
    """
    return dataset.session.reader.batch(resolve_indices(np.asarray(ids), dataset.size))


def row_bytes(dataset: StreamingDataset) -> int:
    """Return the approximate stored bytes of a sample."""
    return dataset.session.feed.row_bytes


@closed_at_exit
def remote_batches(
    dataset: StreamingDataset,
    ask: Callable[[BatchRequest], Any],
    answer: Callable[[Any], Any],
    *,
    ahead: int,
    batch_size: int | None = None,
) -> Generator[Any, None, None]:
    """Yield this rank's batches of the next epoch, read elsewhere; the order and the state stay here.

    Args:
        dataset: The data set; only its index is read here. Its `state_dict` is that after the last batch
            yielded, whatever was requested ahead.
        ask: Requests a batch; returns a handle. With ``on_error="substitute"``, the batch of a request with
            `is_probe` is not used: only the error is, if any.
        answer: Waits for the batch of a handle, and returns it.
        ahead: Number of batches in flight.
        batch_size: Samples per batch; None for the data set's. Sets the data set's if that has none.

    Raises:
        ConfigError: If `ahead` is invalid, or the batch sizes differ.
    """
    ahead = whole_number("ahead", ahead, 1) or 1
    session = dataset.session
    session.run.use_batch_size(batch_size)
    loop = session.begin()
    epoch, blocks = loop.epoch, session.plan_blocks(loop, _PLANNED_ROWS)
    pending: deque[tuple[Block, Any]] = deque()
    substitution = session.make_substitution(loop)

    def receive(block: Block, handle: Any) -> Iterator[Any]:
        loop.clock.enter(HANDOVER)
        try:
            batch = answer(handle)
        except (DataError, StorageError):
            if substitution is None:
                raise
            batch = substitution.read_batch(block, read, partial(read, is_probe=True))
        finally:
            loop.clock.leave()
        loop.add(block)
        with session.monitor.count_yielded(block):
            for step, _ in loop.steps(block):
                loop.advance(step)
                yield batch
        if loop.is_outdated and not loop.is_complete:  # others have been asked for the rest
            session.run.raise_ended()

    def read(block: Block, *, is_probe: bool = False) -> Any:
        return answer(ask(BatchRequest(epoch, block.step, block.ids, is_probe)))

    with session.looping(loop), session.monitoring(loop, fetches=False):
        for block in (single for several in blocks for single in several.split()):
            pending.append((block, ask(BatchRequest(epoch, block.step, block.ids))))
            if len(pending) == ahead:
                yield from receive(*pending.popleft())
        while pending:
            yield from receive(*pending.popleft())
        loop.end()
