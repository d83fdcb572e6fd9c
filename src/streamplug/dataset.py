"""The public `StreamingDataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, ClassVar, overload

import numpy as np

from streamplug.config import Configurable, check_flags, whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import Callback, Decoder, Stats
from streamplug.plan import DatasetFingerprint
from streamplug.plugin import make_uninitialized, registrations, restore
from streamplug.read import SampleReader, promote_numbers, resolve_index, resolve_indices
from streamplug.run import (
    DatasetAttributes,
    Feed,
    Monitor,
    OrderOptions,
    Placement,
    RngIteration,
    Run,
    SampleUse,
    Session,
    SubstitutionOptions,
    explain,
    get_each,
    resolve_callbacks,
    where,
)
from streamplug.source import OpenSources, check_column_names
from streamplug.stream import Stream, complete_streams
from streamplug.transfer import Observer
from streamplug.types import ColumnValues, Int64, Sample, World


class StreamingDataset(RngIteration, DatasetAttributes, Configurable, section="dataset"):
    """Samples of one or several streams, in an order that does not depend on the hardware.

    For a fixed data set, seed, number of canonical nodes and global batch size (`batch_size` times the number
    of ranks), step t of epoch e has the same samples whatever the number of nodes, ranks and workers. An
    epoch is padded to whole global batches with its first samples.

    With torch installed this is a `torch.utils.data.IterableDataset` for a `DataLoader` with any number of
    workers. Without torch, iterate over it (samples), or over `batches` (columns).

    Args:
        streams: The streams; alternatively pass `remote`, `local`, `split` for a single one.
        remote: URL or path of the data set; with a `format`, also of its files, as for `Stream`.
        local: Cache directory for shards; the data set itself if there is no `remote`.
        split: Sub-directory of both, for each stream without its own.
        download_retry: Number of retries of a failed download.
        download_timeout: Stall timeout of downloads in seconds.
        validate_hash: Hash algorithm by which files in `local` are verified once in each process, too.
        keep_zip: Whether to keep compressed shards in `local` beside the raw ones.
        cache_limit: Size limit of the shards in `local`, with LRU eviction: bytes, ``"10gb"``, or ``"50%"``
            of its disk; None is unlimited. It applies to all processes that use the directory.
        epoch_size: Samples of an epoch, or text such as ``"100k"``; None uses the streams' sizes and weights.
        predownload: Samples to prefetch ahead of the current one; None adapts to their size and throughput.
        access: ``"shard"`` downloads whole shards to `local`; ``"range"`` reads only the bytes of samples;
            ``"auto"`` does either, see `Stream`.
        sampling_method: Whether parts of streams are drawn in every epoch (``"balanced"``) or ``"fixed"``.
        sampling_granularity: Number of samples of a shard that are chosen together.
        curriculum: Proportions of the streams, in their order, by the step of the run from which they apply:
            ``{0: [0.9, 0.1], 10_000: [0.5, 0.5]}``. Streams are then read pass after pass, each pass in a
            new order, and an epoch is only a count of `epoch_size` samples.
        batching_method: How batches are composed. ``"random"``: in the order of samples. ``"stratified"``:
            each rank's part of a batch has all streams in their proportions. ``"per_stream"``: a global batch
            has one stream; ``"device_per_stream"``: a rank's batch has one. ``"budget"`` of
            streamplug-budget: a rank's batch has as many samples as `batch_budget` allows.
        batch_budget: Options of ``batching_method="budget"``: a `BatchBudget`, or a mapping.
        num_canonical_nodes: Number of canonical nodes into which the order is partitioned; None for the
            default of `shuffle_algo`, shuffled or not: the number of nodes at the start of the run, 64 times
            that with py1s and py2s.
        batch_size: Samples per batch of one rank; must equal the loader's. None, for a single rank without
            workers, treats every sample as a batch. The largest number of samples with a `batch_budget`.
        shuffle: Whether to shuffle.
        shuffle_algo: Name of the shuffle algorithm: ``"window"``, ``"global"``, or a plugin's.
        shuffle_seed: Seed of the order, the same on all ranks.
        shuffle_block_size: Number of samples that are shuffled together; None for the algorithm's default.
            ``"global"``, and ``"naive"`` of streamplug-mosaic, shuffle all samples whatever it is.
        partition_algo: Name of the partition of the order among ranks. ``"elastic"`` pads the epoch to whole
            global batches, the same on all worlds; ``"orig"`` and ``"relaxed"`` of streamplug-mosaic repeat
            samples near the end as mosaicml-streaming does, depending on the world.
        allow_unsafe_types: Whether to read columns whose decoding can run code.
        columns: Names of the columns to read; None for all.
        select: Rows of the data set to read, as for `Stream`; give it to each of several streams.
        version: Version of the view or the table to read, as for `Stream`.
        decoders: Decoders by column name, which replace the columns' own encodings.
        max_value_bytes: Maximum bytes of a value that is decompressed, as for `Stream`.
        format: Name of the file format, if there is no index.json.
        storage_options: Storage options of all streams without their own.
        replication: Number of consecutive ranks that read the same samples, for tensor or sequence
            parallelism; a global batch is then counted over the groups.
        on_error: ``"raise"`` raises the error of a sample that cannot be fetched or decoded; ``"substitute"``
            yields another sample of the same global batch in its place, the same on all worlds.
        max_errors: Number of samples of an epoch, or share of a rank's samples (``0.001``), that may be
            substituted on a rank before `TooManyBadSamplesError` is raised; None is unlimited.
        callbacks: Callback objects, or names of plugins' callbacks.
        progress_bar: Whether rank 0 shows download progress; None does if stderr is a terminal or a notebook.
        world: Place of this process; None detects it from the launcher.

    Raises:
        StreamplugError: If an argument is invalid, or a stream cannot be opened.
    """

    def __init__(
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | Sequence[str] | None = None,
        local: str | None = None,
        split: str | None = None,
        download_retry: int = 2,
        download_timeout: float = 60.0,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        cache_limit: float | str | None = None,
        epoch_size: float | str | None = None,
        predownload: int | None = None,
        access: str = "shard",
        sampling_method: str = "balanced",
        sampling_granularity: int = 1,
        curriculum: Mapping[int | str, Sequence[float]] | None = None,
        batching_method: str = "random",
        batch_budget: Any = None,
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "window",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        partition_algo: str = "elastic",
        allow_unsafe_types: bool = False,
        columns: Sequence[str] | None = None,
        select: Any = None,
        version: int | str | None = None,
        decoders: Mapping[str, Decoder] | None = None,
        max_value_bytes: float | str | None = None,
        format: str | None = None,  # noqa: A002 - the word that users know
        storage_options: Mapping[str, Any] | None = None,
        replication: int | None = None,
        on_error: str = "raise",
        max_errors: float | None = None,
        callbacks: Sequence[Callback | str] = (),
        progress_bar: bool | None = None,
        world: World | None = None,
    ) -> None:
        order = OrderOptions(
            shuffle=shuffle,
            shuffle_algo=shuffle_algo,
            shuffle_seed=shuffle_seed,
            shuffle_block_size=shuffle_block_size,
            num_canonical_nodes=num_canonical_nodes,
            partition_algo=partition_algo,
            batching_method=batching_method,
            batch_budget=batch_budget,
            batch_size=batch_size,
            predownload=predownload,
            replication=replication,
            epoch_size=epoch_size,
            sampling_method=sampling_method,
            sampling_granularity=sampling_granularity,
            curriculum=curriculum,
        )
        options = SubstitutionOptions(on_error, max_errors)
        placement = self.placement_class(world, order.replication or 1, keep_nodes=order.elastic)
        own = {"select": select, "version": version}
        if (streams is None) == (remote is None and local is None):
            raise ConfigError("give either streams= or remote=/local=")
        if streams is not None:
            for name in (n for n, value in own.items() if value is not None):
                raise ConfigError(f"{name}= with streams=: give each stream a {name}= of its own")
        self.streams = complete_streams(
            [Stream(remote=remote, local=local, format=format, **own)]
            if streams is None
            else streams,
            split=split,
            download_retry=download_retry,
            download_timeout=download_timeout,
            validate_hash=validate_hash,
            keep_zip=keep_zip,
            cache_limit=cache_limit,
            storage_options=storage_options,
            access=access,
            decoders=decoders,
            max_value_bytes=max_value_bytes,
            format=format,
        )
        weights = [stream.weight for stream in self.streams]
        order.check_weights(weights)
        check_column_names(columns)
        check_flags(allow_unsafe_types=allow_unsafe_types)
        used_callbacks = resolve_callbacks(callbacks)
        worker = placement.rank() if used_callbacks else World()
        monitor = Monitor(Observer(used_callbacks, worker), progress_bar)
        if used_callbacks:
            monitor.observer.attach(monitor.stats, [stream.url for stream in self.streams])
        for stream in self.streams:
            _ = stream.storage  # raises for locations that no plugin supports
        opened = self.open_streams(monitor.observer)
        opened = opened.checked(columns, allow_unsafe=allow_unsafe_types)
        self._reader = self.make_reader(opened, columns)
        shards = self._reader.starts, self._reader.stream_shards
        planner = order.order().planner(order, order.streams(weights, *shards), opened)
        run = Run(planner, self.make_fingerprint(opened), order)
        feed = Feed.of(opened, self._reader, order.predownload)
        self._session = Session(opened, feed, run, monitor, placement, substitution=options)
        self._size = self._session.size

    placement_class: ClassVar[type[Placement]] = Placement

    @property
    def session(self) -> Session:
        """The reading session, on which extensions build."""
        return self._session

    def open_streams(self, observer: Observer) -> OpenSources:
        """Open `streams`; subclasses may override this."""
        return OpenSources.open(self.streams, observer)

    def make_reader(self, opened: OpenSources, columns: Sequence[str] | None) -> SampleReader:
        """Return a reader of these columns by sample id; subclasses may override this."""
        return promote_numbers(opened.make_reader(columns), opened.indexes, columns)

    def make_fingerprint(self, opened: OpenSources) -> DatasetFingerprint:
        """Return the fingerprint of the shards that states record."""
        return opened.make_fingerprint(self._reader.starts)

    def __len__(self) -> int:
        """Return the number of samples of one rank in an epoch."""
        return self._session.run.length(self._session.world) if self._size else 0

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice | Sequence[int] | Int64) -> list[Sample]: ...

    def __getitem__(self, at: Any) -> Any:
        """Return one sample (an int, negative from the end) or many (a slice, list or array).

        Raises:
            IndexError: If there is no such sample.
            ConfigError: If there is none, but `len` says so, as it counts the samples of a rank in an epoch.
        """
        if type(at) is int and 0 <= at < self._size:  # fast path
            return self._reader.row(at)
        is_single = isinstance(at, (int, np.integer)) or getattr(at, "ndim", 1) == 0
        resolve: Callable[[Any, int], Any] = resolve_index if is_single else resolve_indices
        try:
            ids = resolve(at, self._size)
        except IndexError:
            self.check_padding(at, resolve)
            raise
        return self._reader.row(ids) if is_single else self._reader.rows(ids)

    def check_padding(self, at: Any, resolve: Callable[[Any, int], Any]) -> None:
        """Raise `ConfigError` for ids from `size` to `len`; subclasses may override this.

        An `IndexError` would end a loop over them, such as one over a `Subset`, without an error.

        Args:
            at: An index or several, not all of stored samples.
            resolve: Returns the ids of `at` among that many samples, or raises `IndexError`.
        """
        with suppress(IndexError):
            resolve(at, len(self))
            raise ConfigError(f"dataset[{at!r:.60}]: {self._describe_length()}")

    def __reversed__(self) -> Iterator[Sample]:
        """Yield the stored samples from the last to the first, if `len` counts them."""
        if len(self) != self._size:
            raise ConfigError(f"reversed(dataset): {self._describe_length()}")
        return (self[number] for number in reversed(range(self._size)))

    def _describe_length(self) -> str:
        return (
            f"the data set has {self._size} stored samples (`size`); its len, {len(self)}, is the number of "
            "samples of one rank in an epoch, filled up to whole batches. For access by index (Subset, "
            "random_split, samplers) use dataset.as_source(), whose len is the number of stored samples"
        )

    def __iter__(self) -> Iterator[Sample]:
        """Yield this worker's samples of the next epoch."""
        self.check_epoch()
        session, rows_of, one_by_one = self._session, self._reader.rows, self.one_by_one
        read = lambda b: get_each(session, b, self.__getitem__) if one_by_one else rows_of(b.ids)  # noqa: E731
        with closing(session.read(read, session.feed.rows)) as blocks:
            for part, block, rows in blocks:
                for step, own in part.steps(block):
                    yield from rows[own.start : own.stop - 1]
                    part.advance(step)
                    yield rows[own.stop - 1]

    @property
    def one_by_one(self) -> bool:
        """Whether samples are read one by one, because a subclass overrides `__getitem__`."""
        return type(self).__getitem__ is not StreamingDataset.__getitem__

    @property
    def may_read_ahead(self) -> bool:
        """Whether a subclass overrides `__iter__` or `batches`, and may call ours in a thread of its own."""
        cls, own = type(self), StreamingDataset
        return cls.__iter__ is not own.__iter__ or cls.batches is not own.batches

    def batches(
        self, batch_size: int | None = None, *, num_threads: int = 0
    ) -> Iterator[dict[str, ColumnValues]]:
        """Yield this rank's batches of the next epoch by column; calls neither torch nor your `__getitem__`.

        Args:
            batch_size: Samples per batch; None for the data set's. Sets the data set's if that has none.
            num_threads: Number of threads that read and decode ahead of use; 0 reads on demand.

        Yields:
            Values by column name: an array whose first axis has length `batch_size` if the encoding of the
            column has one dtype and shape, else a list; a list also with ``ndarray``, whatever the arrays.

        Raises:
            ConfigError: If there is no batch size, or it differs from the data set's.
        """
        session, num_threads = self._session, whole_number("num_threads", num_threads, 0) or 0
        session.run.use_batch_size(batch_size)
        self.check_epoch()
        finish: Callable[[Any], Any] = list if num_threads else iter
        rows = session.feed.rows_of_batches(num_threads=num_threads)
        read = lambda block: finish(self._reader.batches(block.ids, block.parts))  # noqa: E731
        with closing(session.read(read, rows, num_threads)) as blocks:
            for part, block, batches in blocks:
                for (step, _), batch in zip(part.steps(block), batches):
                    part.advance(step)
                    yield batch

    def state_dict(
        self, num_samples: int | None = None, from_beginning: bool = True
    ) -> dict[str, Any]:
        """Return the state of the run between two global batches, as plain JSON values.

        It needs no random numbers: the generators of transforms and of `samples_with_rng` follow from it.

        Args:
            num_samples: Samples used in the epoch that was begun last, over all ranks. None uses the data
                set's own count, which exists only if it was iterated over in this process.
            from_beginning: Whether `num_samples` counts from the epoch's start, or from where it was resumed.

        Raises:
            StateError: If there is no such count, or `num_samples` is no multiple of the global batch size or
                more than an epoch has.
        """
        self._session.own_counters()
        run, world = self._session.run, self._session.world
        if num_samples is None:
            return run.state(world)
        return run.state_after(num_samples, world, from_beginning=from_beginning)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume a run from its state, on any number of nodes, ranks and workers.

        Args:
            saved: Result of `state_dict`; states of mosaicml-streaming are supported.

        Raises:
            StateError: If the state belongs to a run with a different order.
        """
        self._session.load_state(saved)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that a trainer starts; optional, called by trainers such as that of transformers.

        It has an effect on a new run, which begins with this epoch, and on a loaded state: if the trainer had
        read all batches of an epoch, or names a later epoch than that in which it saved the state, its epoch
        was over, and the next loop is the next epoch.

        Args:
            epoch: The trainer's epoch number, from 0.
        """
        self._session.follow_trainer(epoch)

    def set_proportions(self, proportions: Sequence[float]) -> None:
        """Change the proportions of the streams from the next step on.

        A loop that runs goes on with them: the one that was advanced last, others end with an error. Without
        one, the next loop begins with them. States record the change. A run of streams with `proportion`
        reads them pass after pass from there on.

        Args:
            proportions: Share of each stream, in their order, relative to the others.

        Raises:
            ConfigError: If the run was started neither with a `curriculum` nor, without a `batch_budget`,
                with a `proportion` of each stream, its global batch has changed, the proportions are invalid,
                or a batch is used in part.
        """
        self._session.set_proportions(proportions)

    def stats(self) -> Stats:
        """Return statistics since the data set was made, over all processes of this rank.

        Those are this process, its forks, and workers of torch's loaders. A worker counts block by block: its
        counts are ahead of the training loop, and lack its last block if it is stopped early.
        """
        return self._session.monitor.stats()

    def explain(
        self, step: int, *, epoch: int | None = None, rank: int | None = None
    ) -> list[SampleUse]:
        """Return the samples of a step, which is a global batch unless batches vary in size; reads none.

        Args:
            step: Number of the step in the epoch, from 0.
            epoch: Number of the epoch; None for the one that was started last, or else the next.
            rank: Rank whose part to return, or with `replication` the number of its group; None for all.

        Raises:
            ConfigError: If there is no such step or rank.
        """
        return explain(self._session, epoch=epoch, step=step, rank=rank)

    def where(self, sample_id: int, *, epoch: int | None = None) -> list[SampleUse]:
        """Return the steps and ranks that read a sample in an epoch; several if it is used as padding.

        Args:
            sample_id: Sample id, from 0.
            epoch: Number of the epoch; as for `explain`.

        Raises:
            ConfigError: If there is no such sample.
        """
        return list(where(self._session, epoch=epoch, sample=sample_id))

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        # By value if necessary: classes defined in a notebook cannot be imported elsewhere.
        return make_uninitialized, (cloudpickle.dumps(type(self)),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        return {"pickled": cloudpickle.dumps((self.__dict__, registrations()))}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        import cloudpickle

        attributes, registered = cloudpickle.loads(saved["pickled"])
        restore(registered)
        self.__dict__.update(attributes)
