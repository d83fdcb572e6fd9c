"""The public `StreamingDataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import index as as_index
from pathlib import Path
from typing import Any, ClassVar, SupportsIndex, overload

import numpy as np

from streamplug.cache import ShardStore
from streamplug.config import Configurable, check_flags, whole_number
from streamplug.display import ObjectSummary, SummaryRepr
from streamplug.errors import ConfigError, StreamplugError, add_note, prefix_errors
from streamplug.interfaces import Callback, Decoder, Stats
from streamplug.plan import DatasetFingerprint, checked_batches
from streamplug.plugin import make_uninitialized, registrations, restore
from streamplug.read import SampleReader, promote_numbers
from streamplug.run import (
    Block,
    Feed,
    Loop,
    Monitor,
    OrderOptions,
    Part,
    Placement,
    Run,
    SampleRng,
    Session,
    SubstitutionOptions,
    closed_at_exit,
    resolve_callbacks,
)
from streamplug.source import OpenSources, check_column_names
from streamplug.stream import Stream, complete_streams
from streamplug.transfer import DECODE, Observer
from streamplug.types import ColumnValues, Int64, Sample, World


@dataclass(frozen=True, slots=True)
class SampleUse:
    """One use of a sample in an epoch.

    Attributes:
        epoch: Number of the epoch.
        step: Number of the step in the epoch: that of the global batch, which several steps make with
            batches of a budget.
        rank: Rank that reads it; with `replication`, the number of the group of ranks that do, from 0.
        place: Position in that rank's batch.
        sample: Sample id.
        stream: Number of its stream.
        shard: Number of its shard in that stream.
        file: Base name of the shard's raw file.
        index: Position in the shard.
    """

    epoch: int
    step: int
    rank: int
    place: int
    sample: int
    stream: int
    shard: int
    file: str
    index: int


class StreamingDataset(SummaryRepr, Configurable, section="dataset"):
    """Samples of one or several streams, in an order that does not depend on the hardware.

    For a fixed data set, seed, number of canonical nodes and global batch size (`batch_size` times the number
    of ranks), step t of epoch e has the same samples whatever the number of nodes, ranks and workers. An
    epoch is padded to whole global batches with its first samples.

    With torch installed this is a `torch.utils.data.IterableDataset` for a `DataLoader` with any number of
    workers. Without torch, iterate over it (samples), or over `batches` (columns).

    Args:
        streams: The streams; alternatively pass `remote`, `local`, `split` for a single one.
        remote: URL or path of the data set; with a `format`, also of its files, as for `Stream`.
        local: With `remote`, the directory in which its shards are cached. Without, the directory of the data
            set itself, which is read in place.
        split: Sub-directory of both, for each stream without its own.
        download_retry: Number of retries of a failed download.
        download_timeout: Stall timeout of downloads in seconds.
        download_patience: Time for which reading waits for a storage that is away, beyond `download_retry`:
            seconds, or text such as ``"10m"``; 0 is none. Opening the data set does not wait.
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
        shuffle_block_size: Number of samples that are shuffled together; None for the algorithm's default, or
            for as many as the shards that `cache_limit` holds allow, which is then the same on all ranks.
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
        download_patience: float | str = "10m",
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
            download_patience=download_patience,
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
        fingerprint = self.make_fingerprint(opened)
        run = Run(planner, fingerprint, order, cache_share=opened.cache_share)
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

    @property
    def size(self) -> int:
        """Number of samples of all streams."""
        return self._session.size

    num_samples = size

    @property
    def epoch_size(self) -> int:
        """Number of samples of an epoch over all ranks, before padding to whole batches."""
        return self._session.run.planner.streams.epoch_size

    @property
    def num_shards(self) -> int:
        """Number of shards of all streams."""
        return len(self._session.reader.starts) - 1

    @property
    def num_streams(self) -> int:
        """Number of streams."""
        return len(self.streams)

    @property
    def samples_per_shard(self) -> Int64:
        """Number of samples of each shard, shape ``[num_shards]``; computed at each call."""
        return np.diff(self._session.reader.starts)

    @property
    def samples_per_stream(self) -> Int64:
        """Number of samples of each stream, shape ``[num_streams]``."""
        return np.array(self._session.run.planner.streams.sizes)

    @property
    def shards_per_stream(self) -> Int64:
        """Number of shards of each stream, shape ``[num_streams]``."""
        return np.diff(self._session.reader.stream_shards)

    @property
    def batch_size(self) -> int | None:
        """Samples per batch of one rank."""
        return self._session.run.batch_size

    @property
    def shuffle(self) -> bool:
        """Whether samples are shuffled."""
        return self._session.run.options.shuffle

    @property
    def shuffle_algo(self) -> str:
        """Name of the shuffle algorithm, set even if `shuffle` is false."""
        return self._session.run.options.shuffle_algo

    @property
    def shuffle_seed(self) -> int:
        """Seed of the sample order."""
        return self._session.run.options.shuffle_seed

    @property
    def shuffle_block_size(self) -> int:
        """Number of samples that are shuffled together."""
        return self._session.run.identity(self._session.world).shuffle_block_size

    @property
    def num_canonical_nodes(self) -> int:
        """Number of canonical nodes, from the argument, the loaded state or the default, in this order."""
        return self._session.run.identity(self._session.world).num_canonical_nodes

    @property
    def partition_algo(self) -> str:
        """Name of the algorithm that partitions the order among ranks."""
        return self._session.run.options.partition_algo

    @property
    def batching_method(self) -> str:
        """How batches are composed of streams."""
        return self._session.run.options.batching_method

    @property
    def sampling_method(self) -> str | None:
        """``"balanced"`` or ``"fixed"``; None with a `curriculum`."""
        return self._session.run.identity(self._session.world).sampling_method

    @property
    def sampling_granularity(self) -> int | None:
        """Number of consecutive samples of a shard that are chosen together; None with a `curriculum`."""
        return self._session.run.identity(self._session.world).sampling_granularity

    @property
    def predownload(self) -> int | None:
        """Number of samples to prefetch; None adapts to their size and the throughput."""
        return self._session.run.options.predownload

    @property
    def replication(self) -> int:
        """Number of consecutive ranks that read the same samples."""
        return self._session.placement.replication

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next iteration starts, or resumes after a state was loaded."""
        return self._session.run.next().epoch

    @property
    def cache_limit(self) -> int | None:
        """Sum of the cache limits of all cache directories in bytes; None if any is unlimited."""
        caches = [cache for stream in self.streams if (cache := stream.cache) is not None]
        limits: dict[Path, int | None] = dict(caches)
        finite = [limit for limit in limits.values() if limit is not None]
        return sum(finite) if finite and len(finite) == len(limits) else None

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

    def as_source(self) -> MapSource:
        """Return the stored samples by sample id, for loaders that order samples themselves.

        The source has `len`, ``[i]`` and ``__getitems__``, and may be pickled: it is a map-style data set for
        torch's `DataLoader` and samplers, and a data source for Grain.
        """
        return MapSource(self)

    def check_epoch(self) -> None:
        """Check the options at the start of an epoch; subclasses may override this."""

    def __iter__(self) -> Iterator[Sample]:
        """Yield this worker's samples of the next epoch."""
        self.check_epoch()
        session, rows_of = self._session, self._reader.rows
        read = self._get_each if self.one_by_one else lambda block: rows_of(block.ids)
        with closing(session.read(read, session.feed.rows)) as blocks:
            for part, block, rows in blocks:
                for step, own in part.steps(block):
                    yield from rows[own.start : own.stop - 1]
                    part.advance(step)
                    yield rows[own.stop - 1]

    def _get_each(self, block: Block) -> list[Sample]:
        """Get the samples of a block one by one; other errors than ours get a note with the sample."""
        samples = []
        for step, ids in block.ids_by_step():
            for sample in ids.tolist():
                try:
                    samples.append(self[sample])
                except Exception as error:
                    if not isinstance(error, StreamplugError):
                        part = self._session.part
                        epoch = -1 if part is None else part.epoch
                        where = self._session.describe(sample, epoch, step)
                        add_note(error, f"raised for {where}")
                    raise
        return samples

    @property
    def one_by_one(self) -> bool:
        """Whether samples are read one by one, because a subclass overrides `__getitem__`."""
        return overrides(self, "__getitem__")

    @property
    def may_read_ahead(self) -> bool:
        """Whether a subclass overrides `__iter__` or `batches`, and may call ours in a thread of its own."""
        return overrides(self, "__iter__") or overrides(self, "batches")

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
                clock = part.clock
                clock.enter(DECODE)
                for (step, _), batch in zip(part.steps(block), batches):
                    clock.leave()
                    part.advance(step)
                    yield batch
                    clock.enter(DECODE)
                clock.leave()

    @closed_at_exit
    def samples_with_rng(self) -> Iterator[tuple[Sample, np.random.Generator]]:
        """Yield this worker's samples of the next epoch, each with its random generator.

        A generator depends on `shuffle_seed`, the epoch, the step and the sample id alone, see `sample_rng`.
        It is one object, set anew for each sample: use it before the next sample is taken.

        Raises:
            ConfigError: If a subclass yields more or fewer samples than the order has.
        """
        with self._own_loop() as loop:
            yield from self.samples_of(loop)

    def samples_of(self, part: Part) -> Iterator[tuple[Sample, np.random.Generator]]:
        """Yield the samples of `part`, which the session was told, as `samples_with_rng`."""
        session, rng = self._session, SampleRng(self.shuffle_seed)
        global_step = lambda step: session.run.global_step(part.epoch, step, session.world)  # noqa: E731
        places = _places(part.epoch, part.read_batches(), global_step)
        for sample in self:
            if (place := next(places, None)) is None:
                raise _one_to_one(self)
            yield sample, rng.of_sample(*place)
        if next(places, None) is not None:
            raise _one_to_one(self)

    @closed_at_exit
    def batches_with_rng(
        self, batch_size: int | None = None, *, num_threads: int = 0
    ) -> Iterator[tuple[dict[str, ColumnValues], np.random.Generator]]:
        """Yield this rank's batches of the next epoch as `batches`, each with its random generator.

        A generator depends on `shuffle_seed`, the epoch, the step and the rank. It is one object, set anew
        for each batch: use it before the next batch is taken.

        Args:
            batch_size: As for `batches`.
            num_threads: As for `batches`.

        Raises:
            ConfigError: As for `batches`, or if a subclass yields more batches than the order has.
        """
        with self._own_loop() as loop:
            yield from self.batches_of(loop, batch_size, num_threads=num_threads)

    def batches_of(
        self, part: Part, batch_size: int | None = None, *, num_threads: int = 0
    ) -> Iterator[tuple[dict[str, ColumnValues], np.random.Generator]]:
        """Yield the batches of `part`, which the session was told, as `batches_with_rng`."""
        session, rng = self._session, SampleRng(self.shuffle_seed)
        read = part.read_batches()
        for batch in self.batches(batch_size, num_threads=num_threads):
            if (place := next(read, None)) is None:
                raise ConfigError(
                    f"{type(self).__name__}.batches must yield one batch per step, in order, for random "
                    "generators that belong to batches; change batches in the transform"
                )
            yield batch, rng.of_batch(part.epoch, place[0], session.world.rank)

    @contextmanager
    def _own_loop(self) -> Iterator[Loop]:
        """Begin a loop, for which the next read is."""
        session = self._session
        with (
            session.looping(session.begin()) as loop,
            session.telling(loop, by_any_thread=self.may_read_ahead),
        ):
            yield loop

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

    def resize(self, world: World, *, rewind: int = 0, batch_size: int | None = None) -> None:
        """Go on in another world from the next global batch on.

        Call it between two batches, on all ranks after the same step. A loop that runs in this process goes
        on. The global batch stays the same unless `batch_size` is given, and what defaults to the number of
        nodes stays as it was. Ranks that join load the state of another rank.

        Args:
            world: Place of this process from now on.
            rewind: Number of global batches, yielded last, that come again, because their step failed.
                Changes of the global batch and of proportions since are taken back.
            batch_size: Samples per batch of one rank from here on, if the global batch changes, such as for
                ranks that do not divide it. The sequence of samples stays the same; only one order over all
                streams (``batching_method="random"``, without a curriculum) can be cut otherwise.

        Raises:
            ConfigError: If the number of ranks does not divide the global batch, the order is not elastic or
                has no other global batches, `rewind` goes beyond the epoch, or a batch is used in part.
            StateError: If loader workers read the data set: then use `StreamingDataLoader.resize`.
        """
        self._session.resize(world, rewind, batch_size)

    def prepare_shard(self, shard_id: int) -> None:
        """Download a shard into the cache and decompress it, if it is not there; wait until it is done.

        Args:
            shard_id: Number of the shard over all streams.

        Raises:
            ConfigError: If there is no such shard, or its stream has no cache.
            StorageError: If it cannot be downloaded.
            DataError: If it is damaged.
        """
        store, number = self._store_of(shard_id)
        store.ensure(number)

    def evict_shard(self, shard_id: int) -> None:
        """Remove a shard from the cache; it is downloaded again when it is needed.

        Args:
            shard_id: Number of the shard over all streams.

        Raises:
            ConfigError: If there is no such shard, or its stream has no cache or is read in place.
        """
        store, number = self._store_of(shard_id)
        store.evict(number)

    def _store_of(self, shard_id: int) -> tuple[ShardStore, int]:
        shard = whole_number("shard_id", shard_id, 0)
        shards = self._session.reader.stream_shards
        if shard is None or shard >= shards[-1]:
            raise ConfigError(f"shard_id={shard_id!r:.60}: the data set has {shards[-1]} shards")
        stream = int(np.searchsorted(shards, shard, side="right")) - 1
        with prefix_errors(f"shard {shard}", ConfigError):
            return self._session.streams[stream].store, shard - shards[stream]

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
        session = self._session
        run, world = session.run, session.world
        epoch = self._number_of_epoch(epoch)
        plan = run.epoch(epoch, world)
        step = _index("step", step, plan.steps(world), f"epoch {epoch} has the steps")
        if rank is not None:
            there_are, replicas = "there are the ranks", self.replication
            if replicas > 1:
                there_are = (
                    f"with replication={replicas}, groups of ranks count as one, and there are"
                )
            rank = _index("rank", rank, world.ranks, there_are)
        uses = []
        for reading_rank in range(world.ranks) if rank is None else [rank]:
            reader, steps = replace(world, rank=reading_rank), np.array([step])
            ids, _ = checked_batches(plan, reader, steps, self._size)
            uses += [
                SampleUse(epoch, step, reading_rank, place, sample, *self._reader.locate(sample))
                for place, sample in enumerate(ids.tolist())
            ]
        return uses

    def where(self, sample_id: int, *, epoch: int | None = None) -> list[SampleUse]:
        """Return the steps and ranks that read a sample in an epoch; several if it is used as padding.

        Args:
            sample_id: Sample id, from 0.
            epoch: Number of the epoch; as for `explain`.

        Raises:
            ConfigError: If there is no such sample.
        """
        session = self._session
        sample = _index("sample_id", sample_id, self._size, "there are the samples")
        epoch = self._number_of_epoch(epoch)
        return [
            SampleUse(epoch, at.step, at.rank, at.position, sample, *self._reader.locate(sample))
            for at in session.run.epoch(epoch, session.world).where(session.world, sample)
        ]

    def _number_of_epoch(self, epoch: int | None) -> int:
        number = whole_number("epoch", epoch, 0)
        return self._session.run.current().epoch if number is None else number

    def __repr__(self) -> str:
        if "_session" not in self.__dict__:  # not initialized yet
            return object.__repr__(self)
        first = self.streams[0].shown_url
        rest = f" and {len(self.streams) - 1} more" if len(self.streams) > 1 else ""
        session = self._session
        return (
            f"<{type(self).__name__} of {first!r}{rest}: {session.size:,} samples, "
            f"{session.reader.stream_shards[-1]:,} shards, batch_size={session.run.batch_size}>"
        )

    def object_summary(self) -> ObjectSummary:
        """Return a summary of sizes, order and streams."""
        name = type(self).__name__
        if "_session" not in self.__dict__:
            return ObjectSummary(name, [("state", "not made yet")])
        session = self._session
        starts, shards = session.reader.starts, session.reader.stream_shards
        try:
            order = _describe_order(session.run, session.world)
            world = _describe_world(session.placement.rank(), session.world)
        except StreamplugError as error:  # the options do not support this world
            order, world = [], f"{error}"
        facts = [
            ("samples", f"{session.size:,}"),
            ("shards", f"{shards[-1]:,}"),
            *order,
            ("world", world),
        ]
        rows = [
            (
                stream.shown_url,
                stream.shown_share,
                f"{int(starts[last] - starts[first]):,}",
                f"{last - first:,}",
                stream.shown_cache,
            )
            for stream, (first, last) in zip(self.streams, pairwise(shards))
        ]
        return ObjectSummary(name, facts, ("stream", "share", "samples", "shards", "kept in"), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        # By value if necessary: classes defined in a notebook cannot be imported elsewhere.
        return make_uninitialized, (cloudpickle.dumps(type(self)),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        # By value: spawned workers can neither import a class of a notebook, nor know what was registered.
        import cloudpickle

        return {"pickled": cloudpickle.dumps((self.__dict__, registrations()))}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        import cloudpickle

        attributes, registered = cloudpickle.loads(saved["pickled"])
        restore(registered)
        self.__dict__.update(attributes)


def overrides(dataset: StreamingDataset, method: str) -> bool:
    """Return whether the class of a data set has a method of its own in place of ours."""
    return getattr(type(dataset), method) is not getattr(StreamingDataset, method)


def _places(
    epoch: int, batches: Iterator[tuple[int, Int64]], global_step: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Yield epoch, global step and sample id of each sample of batches, whose steps and ids are given."""
    for step, ids in batches:
        number = global_step(step)
        for sample_id in ids.tolist():
            yield epoch, number, sample_id


def _one_to_one(dataset: Any) -> ConfigError:
    return ConfigError(
        f"{type(dataset).__name__}.__iter__ must yield one value per sample, in order, for random generators "
        "that belong to samples; change samples in __getitem__ or in the transform"
    )


def _describe_order(run: Run, world: World) -> list[tuple[str, str]]:
    order = run.identity(world)
    position = run.current()
    epoch, step = position.epoch, 0
    if position.done:  # an empty data set has no epoch
        step = run.epoch(epoch, world).step_at(world, position.done)
    shuffle = "as stored"
    if order.shuffle_algo is not None:
        shuffle = f"{order.shuffle_algo}, seed {order.shuffle_seed}"
        if run.planner.streams.algorithm.uses_block_size:
            shuffle += f", over {order.shuffle_block_size:,} samples"
    size = "not given" if run.batch_size is None else f"{run.batch_size:,} a rank"
    in_all = f"{order.micro_batches:,} batches" if run.counts_batches else f"{order.global_batch:,}"
    return [
        ("epoch", f"{epoch:,}, from step {step:,}; {order.epoch_size:,} samples"),
        ("batch", f"{size}, {in_all} in all; {order.batching_method}"),
        ("order", f"{shuffle}; num_canonical_nodes={order.num_canonical_nodes}"),
        ("partition", order.partition_algo),
    ]


def _describe_world(own: World, planned: World) -> str:
    text = (
        f"rank {own.rank:,} of {own.ranks:,}, on {own.nodes:,} node{'s' if own.nodes > 1 else ''}"
    )
    if planned.ranks != own.ranks:
        text += f"; {own.ranks // planned.ranks:,} ranks in a row get the same samples"
    return text


def _index(name: str, value: Any, stop: int, there_are: str) -> int:
    """Return an index, also of a tensor; raise ConfigError unless it is below `stop`."""
    with suppress(TypeError):
        if not isinstance(value, bool) and 0 <= as_index(value) < stop:
            return as_index(value)
    raise ConfigError(f"{name}={value!r}: {there_are} 0 to {stop - 1}")


class MapSource:
    """Stored samples of a data set by sample id: a map-style data set of torch, a data source of Grain.

    It has no order, ranks or state: the loader that reads it has those. It may be pickled.
    """

    def __init__(self, dataset: StreamingDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples of all streams."""
        return self._dataset.size

    def __getitem__(self, index: int) -> Sample:
        """Return a sample by its id; negative ones count from the end."""
        return self._dataset[resolve_index(as_index(index), len(self))]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return many samples, which are read together; torch's loaders call this for each batch."""
        if self._dataset.one_by_one:
            return [self[index] for index in indices]
        return self._dataset[resolve_indices(indices, len(self))]

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        """Return a text that is the same for the same data: Grain compares it when it resumes."""
        identity = self._dataset.session.run.identity(self._dataset.session.world)
        return f"MapSource(size={len(self)}, shards={identity.shards!r})"


def resolve_index(at: SupportsIndex, size: int) -> int:
    """Return the sample id of an index into `size` samples; negative ones count from the end."""
    number: Any = None if isinstance(at, bool) else at  # bool is a subclass of int
    try:
        at = as_index(number)
    except TypeError:
        raise IndexError(f"samples are chosen by whole numbers, got {at!r:.60}") from None
    if not -size <= at < size:
        raise IndexError(f"sample {at} of a data set with {size} samples")
    return at % size


def resolve_indices(at: slice | Sequence[int] | Int64, size: int) -> Int64:
    """Return the sample ids of many indices, shape ``[n]``; see `resolve_index`."""
    try:
        ids = np.arange(*at.indices(size)) if isinstance(at, slice) else np.asarray(at)
    except ValueError:  # of lists of different lengths
        raise IndexError(
            f"samples are chosen by whole numbers, got lists of different lengths in {at!r:.60}"
        ) from None
    if ids.size and ids.dtype.kind not in "iu":
        raise IndexError(f"samples are chosen by whole numbers, got {ids.dtype} in {at!r:.60}")
    if ids.size and (ids.max() >= size or ids.min() < -size):
        raise IndexError(f"samples {ids.min()} to {ids.max()} of a data set with {size}")
    return ids.astype(np.int64).reshape(-1) % max(size, 1)
