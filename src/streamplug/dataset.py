"""StreamingDataset: where the plan of an epoch meets the bytes of its samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, overload

import numpy as np

from streamplug.config import Configurable, check_flags, whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import Callback, Decoder, Stats
from streamplug.plan import DatasetFingerprint
from streamplug.plugin.registry import make_uninitialized, registrations, restore
from streamplug.read import SampleReader, resolve_index, resolve_indices
from streamplug.session.dataset_attributes import DatasetAttributes
from streamplug.session.mixture_setup import Sampling, complete_streams, make_run
from streamplug.session.monitor import Monitor, resolve_callbacks
from streamplug.session.open_stream import (
    OpenStream,
    check_column_names,
    make_fingerprint,
    read_all,
)
from streamplug.session.order_options import OrderOptions
from streamplug.session.placement import Placement
from streamplug.session.sample_source import SampleSource
from streamplug.session.sample_usage import SampleUse, explain, where
from streamplug.session.session import Session
from streamplug.stream import Stream
from streamplug.transfer.observer import Observer
from streamplug.types import ColumnValues, Int64, Sample, World


class StreamingDataset(DatasetAttributes, Configurable, section="dataset"):
    """Samples of one or several streams, in an order that does not depend on the hardware.

    For a fixed data set, seed, number of canonical nodes and global batch size (`batch_size` times
    the number of ranks), step t of epoch e has the same samples whatever the number of nodes, ranks
    and workers. An epoch is filled up to whole global batches by repeating its first samples.

    With torch installed this is a `torch.utils.data.IterableDataset` for a `DataLoader` with any
    number of workers. Without, iterate over it (samples), or over `batches` (columns).

    Args:
        streams: The streams; or else give `remote`, `local`, `split` for a single one.
        remote: URL or path of the data set; with a `format`, also of its files, as for `Stream`.
        local: Directory for its shards; the data set itself if there is no `remote`.
        split: Sub-directory of both, of each stream that has none of its own.
        download_retry: How often a failed download is tried again.
        download_timeout: Seconds after which a download fails during which nothing arrived.
        validate_hash: Which digest of files to check, those in `local` once in each process; None
            checks what is downloaded by a fast one of those that the index has.
        keep_zip: Whether compressed shards stay in `local` beside the raw ones.
        cache_limit: How much the shards in `local` may take, of all that use it: bytes, ``"10gb"``, or
            ``"50%"`` of its disk. Those not used for longest go. None for any amount.
        epoch_size: Samples of an epoch, or text such as ``"100k"``; None for what streams and weights give.
        predownload: How many samples ahead of the current one shards are made ready; None adapts to
            their size and to how fast they come.
        access: ``"shard"`` downloads whole shards to `local`; ``"range"`` reads only bytes of samples.
        sampling_method: Which samples are taken of a stream that is not taken whole: ``"balanced"``
            chooses anew in every epoch, ``"fixed"`` once.
        sampling_granularity: How many samples of a shard are chosen at a time.
        curriculum: Proportions of the streams, in their order, by the step of the run from which they
            hold: ``{0: [0.9, 0.1], 10_000: [0.5, 0.5]}``. Streams are then read pass after pass,
            each pass in an order of its own, and an epoch is no more than `epoch_size` samples.
        batching_method: What a batch is made of. ``"random"``: whatever the order brings.
            ``"stratified"``: each rank's part of each batch has all streams by their shares.
            ``"per_stream"``: a global batch is of one stream; ``"device_per_stream"``: a rank's batch.
        num_canonical_nodes: Number of canonical nodes into which the order is split; None for the default
            of `shuffle_algo`, shuffled or not: the number of nodes when the run begins, 64 times that with
            py1s and py2s.
        batch_size: Samples per batch of one rank; must be the loader's. None, for a single rank
            without workers, counts every sample as a batch.
        shuffle: Whether to shuffle.
        shuffle_algo: Name of the algorithm: ``"window"``, ``"global"``, or a plugin's.
        shuffle_seed: Seed of the order, the same on all ranks.
        shuffle_block_size: Over how many samples to mix; None for the algorithm's default.
        partition_algo: Name of the partition of the order among ranks. ``"elastic"`` fills the epoch up to
            whole global batches, the same on all worlds; ``"orig"`` and ``"relaxed"`` of streamplug-mosaic
            repeat samples near the end as mosaicml-streaming does, depending on the world.
        allow_unsafe_types: Whether columns whose decoding can run code may be read.
        columns: Names of the columns to read; None for all.
        decoders: What decodes columns in place of their own encodings, by name.
        format: Name of the format of files for which there is no index.json.
        storage_options: Settings of the storages of all streams that have none of their own.
        replication: Groups of so many ranks in a row get the same samples, as tensor or sequence
            parallelism needs; a global batch is what the groups read together.
        callbacks: Objects that are told what happens, or names of such that plugins provide.
        progress_bar: Whether rank 0 shows what it downloads; None where stderr is a terminal or a notebook.
        world: Where this process stands; None takes it from the launcher.

    Raises:
        StreamplugError: If an argument has no meaning, or a stream cannot be opened.
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
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "window",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        partition_algo: str = "elastic",
        allow_unsafe_types: bool = False,
        columns: Sequence[str] | None = None,
        decoders: Mapping[str, Decoder] | None = None,
        format: str | None = None,  # noqa: A002 - the word that users know
        storage_options: Mapping[str, Any] | None = None,
        replication: int | None = None,
        callbacks: Sequence[Callback | str] = (),
        progress_bar: bool | None = None,
        world: World | None = None,
    ) -> None:
        options = OrderOptions(
            shuffle=shuffle,
            shuffle_algo=shuffle_algo,
            shuffle_seed=shuffle_seed,
            shuffle_block_size=shuffle_block_size,
            num_canonical_nodes=num_canonical_nodes,
            partition_algo=partition_algo,
            batching_method=batching_method,
        )
        sampling = Sampling(epoch_size, sampling_method, sampling_granularity, curriculum)
        batch_size = whole_number("batch_size", batch_size, 1)
        self.predownload = whole_number("predownload", predownload, 0)
        groups = whole_number("replication", replication, 1) or 1
        placement = self.placement_class(world, groups, keep_nodes=options.elastic)
        if (streams is None) == (remote is None and local is None):
            raise ConfigError("give either streams= or remote=/local=")
        self.streams = complete_streams(
            streams or [Stream(remote=remote, local=local, format=format)],
            split=split,
            download_retry=download_retry,
            download_timeout=download_timeout,
            validate_hash=validate_hash,
            keep_zip=keep_zip,
            cache_limit=cache_limit,
            storage_options=storage_options,
            access=access,
            decoders=decoders,
            format=format,
        )
        sampling.check(self.streams, options)
        check_column_names(columns)
        check_flags(allow_unsafe_types=allow_unsafe_types)
        used_callbacks = resolve_callbacks(callbacks)
        place = placement.rank() if used_callbacks else World()
        monitor = Monitor(Observer(used_callbacks, place), progress_bar)
        if used_callbacks:
            monitor.observer.attach([stream.url for stream in self.streams])
        for stream in self.streams:
            _ = stream.storage  # refuses locations that no plugin reads
        opened = self.open_streams(monitor.observer)
        for opened_stream in opened:
            opened_stream.check_columns(columns, allow_unsafe=allow_unsafe_types)
        self._reader = self.make_reader(opened, columns)
        fingerprint = self.make_fingerprint(opened)
        run = make_run(
            sampling,
            self.streams,
            self._reader,
            options,
            fingerprint=fingerprint,
            batch_size=batch_size,
        )
        source = SampleSource.of(opened, self._reader, columns, self.predownload)
        self._session = Session(opened, source, run, monitor, placement)
        self._size = self._session.size

    placement_class: ClassVar[type[Placement]] = Placement

    @property
    def session(self) -> Session:
        """The reading of the streams, for what is built on a data set."""
        return self._session

    # -- what a subclass may do otherwise ---------------------------------------------

    def open_streams(self, observer: Observer) -> list[OpenStream]:
        """Open `streams`."""
        return [stream.open(observer) for stream in self.streams]

    def make_reader(
        self, opened: Sequence[OpenStream], columns: Sequence[str] | None
    ) -> SampleReader:
        """Return what reads samples, by their ids, of these columns of some streams."""
        return read_all(opened, columns)

    def make_fingerprint(self, opened: Sequence[OpenStream]) -> DatasetFingerprint:
        """Return what tells this data set from others in states."""
        return make_fingerprint(opened, self._reader.starts)

    # -- what there is --------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of samples that one rank sees in an epoch."""
        return self._session.run.length(self._session.world) if self.size else 0

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
        if type(at) is int and 0 <= at < self._size:  # in nearly all calls
            return self._reader.row(at)
        if isinstance(at, (int, np.integer)) or getattr(at, "ndim", 1) == 0:
            return self._reader.row(resolve_index(at, self._size))
        return self._reader.rows(resolve_indices(at, self._size))

    # -- iteration ----------------------------------------------------------------

    def __iter__(self) -> Iterator[Sample]:
        """Yield this worker's samples of the next epoch."""
        session, rows_of = self._session, self._reader.rows
        one_by_one = self.one_by_one
        read = lambda b: [self[i] for i in b.ids.tolist()] if one_by_one else rows_of(b.ids)  # noqa: E731
        with closing(session.read_epoch(read, session.source.rows)) as blocks:
            for epoch, block, rows in blocks:
                for step, part in block.batches():
                    yield from rows[part.start : part.stop - 1]
                    session.run.moved_to(epoch, step + 1)
                    yield rows[part.stop - 1]

    @property
    def one_by_one(self) -> bool:
        """Whether samples are asked for one by one, as a subclass with a `__getitem__` of its own wants."""
        return type(self).__getitem__ is not StreamingDataset.__getitem__

    def batches(
        self, batch_size: int | None = None, *, num_threads: int = 0
    ) -> Iterator[dict[str, ColumnValues]]:
        """Yield this rank's batches of the next epoch, column by column; needs no torch.

        Args:
            batch_size: Samples per batch; None for the data set's, which takes it over if it has none.
            num_threads: Threads that read and decode ahead of use what takes long; 0 reads on demand.

        Yields:
            The values of each column by its name: an array whose first axis has length
            `batch_size` where all values have one shape, else a list.

        Raises:
            ConfigError: If there is no batch size, or it is not the data set's.
        """
        session = self._session
        session.run.use_batch_size(batch_size)
        num_threads = whole_number("num_threads", num_threads, 0) or 0
        finish, rows = (
            list if num_threads else iter,
            session.source.rows_of_batches(num_threads=num_threads),
        )
        read = lambda block: finish(self._reader.batches(block.ids, block.parts))  # noqa: E731
        with closing(session.read_epoch(read, rows, num_threads)) as blocks:
            for epoch, block, batches in blocks:
                for batch, (step, _) in zip(batches, block.batches()):
                    session.run.moved_to(epoch, step + 1)
                    yield batch

    # -- state ------------------------------------------------------------------------

    def state_dict(
        self, num_samples: int | None = None, from_beginning: bool = True
    ) -> dict[str, Any]:
        """Return where the run stands, as plain JSON values, between two global batches.

        Random numbers of transforms and workers are not in it: derive those from the sample and the epoch.

        Args:
            num_samples: Samples over all ranks that were used in the current epoch. None asks the
                data set, which knows it only when it was iterated over in this process.
            from_beginning: Whether `num_samples` counts from the epoch's beginning, or where it was resumed.

        Raises:
            StateError: If it does not know, or `num_samples` is not whole global batches.
        """
        run, world = self._session.run, self._session.world
        if num_samples is None:
            return run.state(world)
        return run.state_after(num_samples, world, from_beginning=from_beginning)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where another run stood, on any number of nodes, ranks and workers.

        Args:
            saved: What `state_dict` returned there; one of mosaicml-streaming is understood.

        Raises:
            StateError: If it was saved by a run whose order differs from this one's.
        """
        self._session.load_state(saved)

    def set_proportions(self, proportions: Sequence[float]) -> None:
        """Give the streams other proportions, from the step at which the next iteration begins.

        That is the next epoch's first step; or, right after `load_state_dict`, the step of that state,
        so that a training loop can leave an epoch, change the proportions and go on. States record it.

        Args:
            proportions: Share of each stream, in their order, relative to the others'.

        Raises:
            ConfigError: If the run was not begun with a `curriculum`, or the proportions mean nothing.
        """
        self._session.run.set_proportions(proportions, self._session.world)

    # -- what happened ----------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return what has happened since the data set was made, over all processes of this rank.

        Those are this process, its forks, workers of torch's loaders. A worker counts block by block: it is
        a moment ahead of the training loop, and leaves its last block uncounted if it is stopped early.
        """
        return self._session.monitor.stats()

    # -- what the plan says -----------------------------------------------------------------

    def explain(
        self, step: int, *, epoch: int | None = None, rank: int | None = None
    ) -> list[SampleUse]:
        """Return which samples make up a global batch, without reading them.

        Args:
            step: Which global batch of the epoch, from 0.
            epoch: Which epoch; None for the one that was begun last, or else will be the first.
            rank: Whose part of it; None for all ranks, one after the other.

        Raises:
            ConfigError: If there is no such step or rank.
        """
        return explain(self._session, epoch=epoch, step=step, rank=rank)

    def where(self, sample_id: int, *, epoch: int | None = None) -> list[SampleUse]:
        """Return when, and by which rank, a sample is read in an epoch; more than once if it fills up.

        Args:
            sample_id: Which sample, from 0.
            epoch: Which epoch; as for `explain`.

        Raises:
            ConfigError: If there is no such sample.
        """
        return list(where(self._session, epoch=epoch, sample=sample_id))

    # -- other processes ----------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        # By value where need be: classes that were made in a notebook can be imported nowhere.
        return make_uninitialized, (cloudpickle.dumps(type(self)),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        return {"pickled": cloudpickle.dumps((self._portable(), registrations()))}

    def _portable(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, saved: dict[str, Any]) -> None:
        import cloudpickle

        attributes, registered = cloudpickle.loads(saved["pickled"])
        restore(registered)
        self.__dict__.update(attributes)
