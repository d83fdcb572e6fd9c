"""Ray Data source of the samples of a data set, once each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from ray.data import Dataset, Datasource, read_datasource
from ray.data.block import Block, BlockAccessor, BlockMetadata
from ray.data.datasource import ReadTask

from streamplug import StreamingDataset, World
from streamplug.errors import ConfigError
from streamplug.types import Int64
from streamplug_ray.remote_batches import DatasetCopy, row_bytes, take

_OF_EPOCHS = (
    *("batch_budget", "batch_size", "curriculum", "epoch_size", "num_canonical_nodes"),
    *("predownload", "replication", "shuffle", "world"),
)
"""Options of `StreamingDataset` that would be ignored."""

_BLOCK_ROWS = 4096
_BLOCK_BYTES = 32 << 20
"""Maximum rows of a block, and approximate maximum of their stored bytes."""


class StreamplugDatasource(Datasource):  # type: ignore[misc]  # where ray is not installed
    """Reads ranges of shards, each by a task of Ray Data."""

    def __init__(self, remote: str | None = None, **options: Any) -> None:
        """Open the data set; reads only the index.

        Args:
            remote: URL of the data set, or a path that all machines share.
            **options: Further arguments of `StreamingDataset`, such as ``columns`` and ``local``, but none of
                the order and the size of epochs.

        Raises:
            ConfigError: If an option has no meaning where each sample is read once.
            StreamplugError: As `StreamingDataset`.
        """
        super().__init__()
        for name in _OF_EPOCHS:
            if options.get(name):
                raise ConfigError(
                    f"{name}={options[name]!r:.60}: Ray Data reads each sample once, in an order of its own; "
                    "leave it out, or use RayBatches for the order of a run"
                )
        if options.get("on_error", "raise") != "raise":
            raise ConfigError(
                f"on_error={options['on_error']!r:.60}: Ray Data reads no other samples in place of damaged "
                "ones; leave it out, or use RayBatches"
            )
        for stream in options.get("streams") or ():
            for name, value in stream.weight.options.items():
                raise ConfigError(f"{stream!r}: {name}={value!r}: Ray Data reads each sample once")
        config = {"remote": remote, **options, "world": World()}
        dataset = StreamingDataset(**config)
        self._copy = DatasetCopy.of(dataset, config)
        counts = dataset.samples_per_shard
        self._starts: Int64 = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self._row_bytes = row_bytes(dataset)

    def get_name(self) -> str:
        return "Streamplug"

    def estimate_inmemory_data_size(self) -> int:
        return int(self._starts[-1]) * self._row_bytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        rows = max(min(_BLOCK_ROWS, _BLOCK_BYTES // self._row_bytes), 1)
        return [
            ReadTask(
                _reading(self._copy, first, last, rows),
                BlockMetadata(
                    num_rows=last - first,
                    size_bytes=(last - first) * self._row_bytes,
                    exec_stats=None,
                    input_files=None,
                ),
                per_task_row_limit=per_task_row_limit,
            )
            for first, last in self._ranges(parallelism)
        ]

    def _ranges(self, count: int) -> list[tuple[int, int]]:
        """Return about `count` ranges of samples that begin and end at shard boundaries."""
        total = int(self._starts[-1])
        wished = np.arange(1, count) * total // max(count, 1)
        cuts = self._starts[np.searchsorted(self._starts, wished)]
        return [(a, b) for a, b in pairwise([0, *cuts.tolist(), total]) if a < b]


def from_streamplug(
    remote: str | None = None,
    *,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """Return a streamplug data set as a Ray Data dataset, with each sample once.

    Blocks are yielded as they complete; in the order of the data set if Ray Data's ``preserve_order`` is set.

    Args:
        remote: URL of the data set, or a path that all machines share.
        override_num_blocks: Number of read tasks, each of at least one shard; None lets Ray choose.
        ray_remote_args: Arguments of `ray.remote` for the read tasks.
        **options: Further arguments of `StreamingDataset`, such as ``columns`` and ``local``.

    Raises:
        StreamplugError: As `StreamingDataset`.
    """
    return read_datasource(
        StreamplugDatasource(remote, **options),
        override_num_blocks=override_num_blocks,
        ray_remote_args=dict(ray_remote_args or {}),
    )


def _reading(copy: DatasetCopy, first: int, last: int, rows: int) -> Callable[[], Iterator[Block]]:
    def read() -> Iterator[Block]:
        dataset = copy.open()
        for start in range(first, last, rows):
            ids = np.arange(start, min(start + rows, last))
            yield BlockAccessor.batch_to_block(take(dataset, ids))

    return read
