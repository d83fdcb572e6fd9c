"""StreamingDataset: where the plan of an epoch meets the bytes of its samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, overload

import numpy as np

from streamplug.config import detect_world, parse_count
from streamplug.errors import ConfigError
from streamplug.explain import Use, explain, where
from streamplug.fetch import prefetched
from streamplug.plan import Mixture, choose_per_stream, worker_steps
from streamplug.plugin.registry import registrations, restore
from streamplug.read import OpenShards, Reader
from streamplug.run import Run
from streamplug.stream import Stream
from streamplug.types import ColumnValues, Int64, Sample, World

_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 4096


class Block:
    """Some batches of one worker, to be read together.

    Attributes:
        ids: Their sample ids, one batch after the other.
    """

    def __init__(self, steps: Int64, ids: Int64) -> None:
        """Take the batches of `steps`, ids of shape ``[steps, batch]``, -1 where one is short."""
        taken = ids >= 0
        self.ids: Int64 = ids[taken]
        self._steps = steps.tolist()
        self._ends = np.cumsum(taken.sum(1)).tolist()

    def batches(self) -> Iterator[tuple[int, slice]]:
        """Yield the step of each batch that is not empty, and where its samples are."""
        for step, start, end in zip(self._steps, [0, *self._ends], self._ends):
            if start < end:
                yield step, slice(start, end)


class StreamingDataset:
    """Samples of one or several streams, in an order that does not depend on the hardware.

    For a fixed data set, seed, number of canonical nodes and global batch size (`batch_size` times
    the number of ranks), step t of epoch e has the same samples whatever the number of nodes, ranks
    and workers. An epoch is filled up to whole global batches by repeating its first samples.

    With torch installed this is a `torch.utils.data.IterableDataset` for a `DataLoader` with any
    number of workers. Without, iterate over it (samples), or over `batches` (columns).

    Args:
        streams: The streams; or else give `remote`, `local`, `split` for a single one.
        remote: URL or path of the data set.
        local: Directory for its shards; the data set itself if there is no `remote`.
        split: Sub-directory of both.
        download_retry: How often a failed download is tried again.
        validate_hash: Which digest of files to check; None checks what was downloaded with a fast
            one of those that the index has.
        keep_zip: Whether compressed shards stay in `local` beside the raw ones.
        epoch_size: Samples of an epoch: a number, or text such as ``"100k"``; None for as many as there
            are, or as the weights of the streams ask for.
        predownload: How many samples ahead of the current one shards are made ready; None for
            eight batches, at least 64.
        sampling_method: Which samples are taken of a stream that is not taken whole: ``"balanced"``
            chooses anew in every epoch, ``"fixed"`` once.
        sampling_granularity: How many samples of a shard are chosen at a time.
        num_canonical_nodes: Into how many lanes the order is split; None for the algorithm's
            default: the number of nodes when the run begins.
        batch_size: Samples per batch of one rank; must be the loader's. None, for a single rank
            without workers, counts every sample as a batch.
        shuffle: Whether to shuffle.
        shuffle_algo: Name of the algorithm: ``"window"``, ``"global"``, or a plugin's.
        shuffle_seed: Seed of the order, the same on all ranks.
        shuffle_block_size: Over how many samples to mix; None for the algorithm's default.
        partition_algo: How the order is dealt to ranks. ``"elastic"`` fills the epoch up to whole
            global batches, the same on all worlds; ``"orig"`` and ``"relaxed"`` do as
            mosaicml-streaming does, where what is repeated near the end depends on the world.
        allow_unsafe_types: Whether columns whose decoding can run code may be read.
        columns: Names of the columns to read; None for all.
        storage_options: Settings of the storages of all streams that have none of their own.
        world: Where this process stands; None takes it from the launcher.

    Raises:
        StreamplugError: If an argument has no meaning, or a stream cannot be opened.
    """

    def __init__(
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        download_retry: int = 2,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        epoch_size: int | str | None = None,
        predownload: int | None = None,
        sampling_method: str = "balanced",
        sampling_granularity: int = 1,
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "window",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        partition_algo: str = "elastic",
        allow_unsafe_types: bool = False,
        columns: Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        world: World | None = None,
    ) -> None:
        if (streams is None) == (remote is None and local is None):
            raise ConfigError("give either streams= or remote=/local=")
        self.streams = [
            stream.with_defaults(
                download_retry=download_retry,
                validate_hash=validate_hash,
                keep_zip=keep_zip,
                storage_options=storage_options,
            )
            for stream in (streams or [Stream(remote=remote, local=local, split=split)])
        ]
        _at_least(1, batch_size=batch_size, num_canonical_nodes=num_canonical_nodes)
        _at_least(1, sampling_granularity=sampling_granularity)
        _at_least(1, shuffle_block_size=shuffle_block_size)
        _at_least(0, predownload=predownload, shuffle_seed=shuffle_seed)
        self.predownload = max(8 * (batch_size or 1), 64) if predownload is None else predownload
        self._given_world = world
        self._open_streams(list(columns) if columns is not None else None, allow_unsafe_types)
        self._run = Run(
            self._reader.starts,
            self._reader.stream_shards,
            self._mixture(
                epoch_size, sampling_method, sampling_granularity, shuffle_seed, partition_algo
            ),
            batch_size=batch_size,
            shuffle_algo=shuffle_algo if shuffle else None,
            shuffle_seed=shuffle_seed,
            shuffle_block_size=shuffle_block_size,
            num_canonical_nodes=num_canonical_nodes,
            partition_algo=partition_algo,
        )

    def _open_streams(self, columns: list[str] | None, allow_unsafe: bool) -> None:
        opened = [stream.open() for stream in self.streams]
        for stream in opened:
            stream.check_columns(columns, allow_unsafe=allow_unsafe)
        samples = [stream.index.samples for stream in opened]
        self.samples_per_shard: Int64 = np.concatenate(samples)
        self._remote = any(stream.store.fetches for stream in opened)
        self._reader = Reader(
            samples, [OpenShards(stream.index, stream.store, columns) for stream in opened]
        )
        self._row_bytes = max(sum(s.index.raw_bytes for s in opened) // max(self.size, 1), 1)

    def _mixture(
        self, epoch_size: int | str | None, method: str, granularity: int, seed: int, algo: str
    ) -> Mixture:
        if method not in ("balanced", "fixed"):
            raise ConfigError(f"sampling_method={method!r}: choose 'balanced' or 'fixed'")
        starts, shards = self._reader.starts, self._reader.stream_shards
        sizes = [int(starts[last] - starts[first]) for first, last in pairwise(shards)]
        weights = [stream.weight for stream in self.streams]
        size = None if epoch_size is None else parse_count(epoch_size, "epoch_size")
        choose = choose_per_stream(sizes, weights, size, seed)
        return Mixture(tuple(choose), method, granularity, exact=algo != "elastic")

    # -- what there is --------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of samples of all streams."""
        return int(self._reader.starts[-1])

    num_samples = size

    @property
    def num_shards(self) -> int:
        """Number of shards of all streams."""
        return len(self.samples_per_shard)

    @property
    def batch_size(self) -> int | None:
        """Samples per batch of one rank."""
        return self._run.batch_size

    def __len__(self) -> int:
        """Return the number of samples that one rank sees in an epoch."""
        return self._run.partition(self._world()).per_rank if self.size else 0

    # -- random access ----------------------------------------------------------

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice | Sequence[int] | Int64) -> list[Sample]: ...

    def __getitem__(self, at: Any) -> Any:
        """Return one sample (an int, negative from the end) or many (a slice, list or array).

        Raises:
            IndexError: If there is no such sample.
        """
        if isinstance(at, (int, np.integer)):
            size = self.size
            if not -size <= at < size:
                raise IndexError(f"sample {at} of a data set with {size} samples")
            return self._reader.row(int(at) % size)
        if isinstance(at, slice):
            at = np.arange(*at.indices(self.size))
        ids = np.asarray(at)
        if ids.size and ids.dtype.kind not in "iu":
            raise IndexError(f"samples are chosen by whole numbers, got {ids.dtype} in {at!r:.60}")
        if ids.size and (ids.max() >= self.size or ids.min() < -self.size):
            raise IndexError(f"samples {ids.min()} to {ids.max()} of a data set with {self.size}")
        return self._reader.rows(ids.astype(np.int64).reshape(-1) % max(self.size, 1))

    # -- iteration ----------------------------------------------------------------

    def __iter__(self) -> Iterator[Sample]:
        """Yield this worker's samples of the next epoch."""
        # A subclass may change samples on their way out, as with mosaicml-streaming.
        overridden = type(self).__getitem__ is not StreamingDataset.__getitem__
        read = (lambda ids: [self[i] for i in ids.tolist()]) if overridden else self._reader.rows
        for epoch, block in self._blocks():
            rows = read(block.ids)
            for step, part in block.batches():
                yield from rows[part.start : part.stop - 1]
                self._run.moved_to(epoch, step + 1)
                yield rows[part.stop - 1]

    def batches(self, batch_size: int | None = None) -> Iterator[dict[str, ColumnValues]]:
        """Yield this rank's batches of the next epoch, column by column; needs no torch.

        Args:
            batch_size: Samples per batch; None for the data set's, which takes it over if it has none.

        Yields:
            The values of each column by its name: an array whose first axis has length
            `batch_size` where all values have one shape, else a list.

        Raises:
            ConfigError: If there is no batch size, or it is not the data set's.
        """
        self._run.use_batch_size(batch_size)
        for epoch, block in self._blocks():
            columns = self._reader.batch(block.ids)
            for step, part in block.batches():
                self._run.moved_to(epoch, step + 1)
                yield {name: values[part] for name, values in columns.items()}

    def _blocks(self) -> Iterator[tuple[int, Block]]:
        """Yield (epoch, block) for this worker's next epoch, the shards of each block ready."""
        world, ticket = self._place()
        batch = self._run.batch
        epoch, first = self._run.begin(ticket, world.worker)
        plan = self._run.epoch(epoch, world)
        steps = worker_steps(world, first, plan.steps)
        each = max(min(_BLOCK_ROWS, _BLOCK_BYTES // self._row_bytes) // batch, 1)
        chunks = (steps[start : start + each] for start in range(0, len(steps), each))
        blocks = (Block(chunk, plan.ids(world, batch, chunk)) for chunk in chunks)
        if self._remote:
            blocks = prefetched(
                blocks,
                shards_of=lambda block: self._reader.shards_of(block.ids),
                samples=lambda block: block.ids.size,
                ensure=self._reader.open,
                ahead=self.predownload,
            )
        with closing(blocks):
            for block in blocks:
                yield epoch, block
        self._run.moved_to(epoch + 1, 0)

    def _world(self) -> World:
        """Return where this rank stands, without its workers."""
        return self._given_world or detect_world()

    def _place(self) -> tuple[World, int]:
        """Return where this process stands, and the ticket of the loop that it is a worker of."""
        return self._world(), 0

    # -- state ------------------------------------------------------------------------

    def state_dict(
        self, num_samples: int | None = None, from_beginning: bool = True
    ) -> dict[str, Any]:
        """Return where the run stands, as plain JSON values, between two global batches.

        Args:
            num_samples: Samples over all ranks that were used in the current epoch. None asks the
                data set, which knows it only when it was iterated over in this process.
            from_beginning: Whether `num_samples` counts from the beginning of the epoch or from
                where it was resumed.

        Raises:
            StateError: If it does not know, or `num_samples` is not whole global batches.
        """
        if num_samples is None:
            return self._run.state(self._world())
        return self._run.state_after(num_samples, self._world(), from_beginning=from_beginning)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another run stood, on any number of nodes, ranks and workers.

        Args:
            saved: What `state_dict` returned there; one of mosaicml-streaming is understood.

        Raises:
            StateError: If it was saved by a run whose order differs from this one's.
        """
        self._run.load(saved, self._world())

    # -- what the plan says -----------------------------------------------------------------

    def explain(self, step: int, *, epoch: int | None = None, rank: int | None = None) -> list[Use]:
        """Return which samples make up a global batch, without reading them.

        Args:
            step: Which global batch of the epoch, from 0.
            epoch: Which epoch; None for the one that was begun last, or else will be the first.
            rank: Whose part of it; None for all ranks, one after the other.

        Raises:
            ConfigError: If there is no such step or rank.
        """
        return explain(
            self._run, self._reader, self._world(), epoch=self._epoch(epoch), step=step, rank=rank
        )

    def where(self, sample_id: int, *, epoch: int | None = None) -> list[Use]:
        """Return when, and by which rank, a sample is read in an epoch; more than once if it fills up.

        Args:
            sample_id: Which sample, from 0.
            epoch: Which epoch; as for `explain`.

        Raises:
            ConfigError: If there is no such sample.
        """
        found = where(
            self._run, self._reader, self._world(), epoch=self._epoch(epoch), sample=sample_id
        )
        return list(found)

    def _epoch(self, epoch: int | None) -> int:
        return self._run.clock.current()[0] if epoch is None else epoch

    # -- other processes ----------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        # By value where need be: classes that were made in a notebook can be imported nowhere.
        return _blank, (cloudpickle.dumps(type(self)),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        return {"pickled": cloudpickle.dumps((self._portable(), registrations()))}

    def _portable(self) -> dict[str, Any]:
        # A worker belongs to this rank's place, which it may not be able to find out by itself.
        return {**self.__dict__, "_given_world": self._world()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        import cloudpickle

        attributes, registered = cloudpickle.loads(saved["pickled"])
        restore(registered)
        self.__dict__.update(attributes)


def _blank(pickled_class: bytes) -> StreamingDataset:
    import cloudpickle

    cls: type[StreamingDataset] = cloudpickle.loads(pickled_class)
    return cls.__new__(cls)


def _at_least(lowest: int, **values: Any) -> None:
    for name, value in values.items():
        if value is not None and (not isinstance(value, (int, np.integer)) or value < lowest):
            raise ConfigError(f"{name}={value!r}: must be a whole number of at least {lowest}")
