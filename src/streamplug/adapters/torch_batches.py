"""Transfer of batches from a worker to the training loop by shared memory."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from streamplug.adapters.collate import UnequalArrays, collate_columns, collate_samples
from streamplug.adapters.dtypes import has_torch_dtype
from streamplug.adapters.message_batching import (
    MAX_BATCHES_PER_MESSAGE,
    BatchMessage,
    group_batches,
)
from streamplug.adapters.shared_memory import (
    MIN_SHARED_BYTES,
    PackedArrays,
    SharedArrays,
    unpack_arrays,
)
from streamplug.adapters.string_packing import StringLayout, message_bytes, pack_strings
from streamplug.adapters.torch_transform import RandomTransform
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DecodeError
from streamplug.session.hints import warn_about_own_samples
from streamplug.session.sample_errors import note_batch, note_sample
from streamplug.session.sample_rng import SampleRng
from streamplug.types import ColumnValues

if TYPE_CHECKING:
    from streamplug.adapters import torch as adapters


class WorkerBatches(IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """The batches of a data set as a worker reads them."""

    def __init__(
        self,
        dataset: adapters.StreamingDataset,
        transform: Callable[[Any], Any] | RandomTransform | None,
        collate: Callable[[list[Any]], Any] | None,
        *,
        drop_last: bool,
        shared_arrays: list[SharedArrays],
        num_threads: int,
        shared: torch.Tensor | None,
    ) -> None:
        self.dataset = dataset
        # See `WorkerLoop.begun`, and the largest number of batches of a message; in shared memory, as
        # persistent workers begin again.
        self._shared = shared
        self._transform, self._collate = transform, collate
        self._drop_last, self._threads = drop_last, num_threads
        self._shared_arrays = shared_arrays
        self._batch: list[Any] = []  # the latest, while it is taken
        # A subclass may yield other samples than those of the order.
        self._names_samples = type(dataset).__iter__ is StreamingDataset.__iter__

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is None:
            return map(_tensors, self._batches())
        if self._shared is not None:
            self.dataset.session.placement.begun = int(self._shared[0])
        return self._messages(worker.id)

    def _messages(self, worker: int) -> Iterator[tuple[int, BatchMessage[Any]]]:
        """Yield messages with the number of changes of the world before them, until the loop is over."""
        run = self.dataset.session.run
        shared = self._shared_arrays[worker] if self._shared_arrays else None
        while True:
            read = takewhile(lambda _: run.world_change() is None, self._batches())
            batches = (_pack(batch, shared) for batch in read)
            messages = group_batches(
                batches,
                _nbytes,
                worker,
                max_batches=self._max_batches,
                wrap_error=partial(
                    ExceptionWrapper, where=f"in DataLoader worker process {worker}"
                ),
            )
            for message in messages:
                yield run.num_changes, message
                if not isinstance(message[2], bool):
                    return
            # Batches that were read, but not used, may have to be read again in another world. A worker that
            # waited here would hold up the messages of others.
            while (change := run.world_change()) is None:
                if run.clock.is_ended(run.loop_epoch):
                    return
                yield run.num_changes, (worker, [], True)
            run.resume_loop(change)

    def _max_batches(self) -> int:
        return MAX_BATCHES_PER_MESSAGE if self._shared is None else int(self._shared[1])

    def _batches(self) -> Iterator[Any]:
        return self._of_columns() if self._collate is None else self._of_samples(self._collate)

    def _of_columns(self) -> Iterator[Any]:
        transform = self._transform
        if isinstance(transform, RandomTransform):
            again = lambda _, columns: transform((columns, self._batch_rng()))  # noqa: E731
            for columns, rng in self.dataset.batches_with_rng(num_threads=self._threads):
                if self._is_kept(len(next(iter(columns.values())))):
                    with transform.states():
                        batch = self._call(transform, (columns, rng), self._read_columns, again)
                    yield batch
            return
        finish = transform or partial(collate_columns, collate=default_collate)
        for columns in self.dataset.batches(num_threads=self._threads):
            if self._is_kept(len(next(iter(columns.values())))):
                again = lambda _, columns: finish(columns)  # noqa: E731
                yield self._call(finish, columns, self._read_columns, again)

    def _of_samples(self, collate: Callable[[list[Any]], Any]) -> Iterator[Any]:
        if collate is default_collate:
            collate = partial(collate_samples, collate=default_collate)
        run = self.dataset.session.run
        take_batch = self._take_step if run.varies else self._take_batch
        samples: Iterator[Any]
        states: Callable[[], AbstractContextManager[None]] = nullcontext
        transform = self._transform
        if isinstance(transform, RandomTransform):
            samples, states = self.dataset.samples_with_rng(), transform.states
        else:
            samples = iter(self.dataset)
        if transform is not None:
            samples = self._transformed(samples, transform)
        again = lambda ids, samples: collate(self._transform_again(ids, samples))  # noqa: E731
        while True:
            with states():
                batch = take_batch(samples)
            if not batch or run.world_change() is not None:
                return  # a batch of the world before may be cut short
            if self._is_kept(len(batch)):
                yield self._call(collate, batch, self._read_samples, again)

    def _transformed(
        self, samples: Iterator[Any], transform: Callable[[Any], Any]
    ) -> Iterator[Any]:
        again = lambda ids, samples: self._transform_again(ids, samples)[0]  # noqa: E731
        # Not map(): to its caller a StopIteration of the transform would be the end of the epoch.
        for sample in samples:
            yield self._call(transform, sample, self._read_samples, again, len(self._batch))

    def _call(
        self,
        function: Callable[[Any], Any],
        value: Any,
        read: Callable[[Sequence[int]], Any],
        again: Callable[[Sequence[int], Any], Any],
        number: int | None = None,
    ) -> Any:
        """Return the result of a user's function for the latest batch, or for the sample `number` in it.

        Samples that it cannot decode are substituted; see `Substitution.apply` for `read` and `again`.
        """
        try:
            try:
                return function(value)
            except DecodeError:
                session = self.dataset.session
                substitution, latest = session.latest_substitution(), session.monitor.latest_batch()
                if substitution is None or latest is None or not self._names_samples:
                    raise
                step, ids = latest[0], latest[1].tolist()
                return substitution.apply(
                    step, ids if number is None else [ids[number]], read, again
                )
        except Exception as error:
            if self._names_samples and number is None:
                note_batch(error, self.dataset.session)
            elif self._names_samples:
                note_sample(error, self.dataset.session, number or 0)
            raise

    def _read_columns(self, ids: Sequence[int]) -> dict[str, ColumnValues]:
        return self.dataset.session.reader.batch(np.array(ids, np.int64))

    def _read_samples(self, ids: Sequence[int]) -> list[Any]:
        return [self.dataset[sample] for sample in ids]

    def _transform_again(self, ids: Sequence[int], samples: list[Any]) -> list[Any]:
        """Transform samples with the random numbers of those that the order has in their place."""
        transform, session = self._transform, self.dataset.session
        if transform is None:
            return samples
        latest = session.monitor.latest_batch()
        if not isinstance(transform, RandomTransform) or latest is None:
            return [transform(sample) for sample in samples]
        place = session.run.loop_epoch, session.run.global_step(latest[0], session.world)
        rng = SampleRng(session.run.options.shuffle_seed)
        with transform.states():
            return [transform((s, rng.of_sample(*place, n))) for n, s in zip(ids, samples)]

    def _batch_rng(self) -> np.random.Generator:
        session = self.dataset.session
        epoch, next_step = session.run.position
        rng = SampleRng(session.run.options.shuffle_seed)
        return rng.of_batch(epoch, next_step - 1, session.world.rank)

    def _take_batch(self, samples: Iterator[Any]) -> list[Any]:
        """Return the next samples of an iterator over those of the data set, changed or not."""
        self._batch = batch = []
        for first in samples:  # `run` follows a change of the world when the iteration begins
            batch.append(first)
            batch.extend(islice(samples, self.dataset.session.run.batch - 1))
            break
        return batch

    def _take_step(self, samples: Iterator[Any]) -> list[Any]:
        """Return the samples of the next step, whose batches vary in size."""
        run = self.dataset.session.run
        self._batch = batch = []
        done = run.completed_steps
        for sample in samples:
            batch.append(sample)
            if run.completed_steps != done:
                break
        return batch

    def _is_kept(self, size: int) -> bool:
        """Return whether a batch of some samples is not dropped as a short one."""
        run = self.dataset.session.run
        return not self._drop_last or size == run.batch or run.varies


@dataclass(frozen=True, slots=True)
class TransformedCollate:
    """Collates samples after their transform, for other loaders over the data set of one of ours."""

    collate: Callable[[list[Any]], Any]
    transform: Callable[..., Any] | RandomTransform | None
    is_of_batches: bool  # whether the transform takes columns

    def __call__(self, samples: list[Any]) -> Any:
        """Return the batch of some samples.

        Raises:
            ConfigError: If the transform takes columns or random numbers, which depend on the loader.
        """
        if self.is_of_batches or isinstance(self.transform, RandomTransform):
            name = "batch_transform=" if self.is_of_batches else "transform= with random numbers"
            raise ConfigError(
                f"collate_fn of a StreamingDataLoader with {name} was called by another loader, "
                "which cannot apply the transform; use the StreamingDataLoader itself, and its "
                "load_state_dict() to go on within an epoch, instead of skipping batches"
            )
        changed = samples if self.transform is None else list(map(self.transform, samples))
        if self.collate is default_collate:
            return collate_samples(changed, default_collate)
        return _tensors(self.collate(changed))


def own_collate(collate: Callable[[list[Any]], Any] | None) -> Callable[[list[Any]], Any] | None:
    """Return the `collate_fn` that a user gave a loader, whose attribute may be passed on; None for none."""
    if isinstance(collate, TransformedCollate):
        collate = collate.collate
    return None if collate is default_collate else collate


def compare_with_order(loader: adapters.StreamingDataLoader, epoch: int, step: int) -> None:
    """Warn if an epoch that ended before a step has another one, by an `__iter__` that is not the order's."""
    session, cls = loader.dataset.session, type(loader.dataset)
    if cls.__iter__ is not StreamingDataset.__iter__ and not loader.drop_last:
        steps = session.run.epoch(epoch, session.world).steps
        warn_about_own_samples(cls.__name__, step, steps, session.world)


def release_after_error(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield from torch's iterator over workers; after an error, hold no reference to it.

    An error of a worker refers to itself and to that iterator through the frames of torch that raised it: the
    workers would go on until such a cycle is collected. So does a KeyboardInterrupt, which an interactive
    session keeps.
    """
    try:
        yield from batches
    except BaseException as error:
        del batches
        traceback.clear_frames(error.__traceback__)
        raise


class _OpenQueues:
    """Keeps the queues of an iterator, which holds the only reference to this, out of garbage collection."""

    _queues: ClassVar[dict[int, Any]] = {}

    def __init__(self, iterator: Any) -> None:
        self._queues[id(self)] = getattr(iterator, "_index_queues", None)

    def __del__(self) -> None:
        self._queues.pop(id(self), None)


def start_iterator(loader: DataLoader[Any]) -> Any:
    """Return torch's iterator over workers, which end at once even if it is part of a reference cycle.

    When a cycle is collected, callbacks of weak references come first: they would end the queues of the
    iterator before it tells the workers to end, and torch would wait 5 s for each of them.
    """
    if loader.num_workers:
        loader.worker_init_fn = partial(_start_worker, loader.worker_init_fn)
    iterator: Any = iter(loader)
    iterator.streamplug_queues = _OpenQueues(iterator)
    return iterator


def are_workers_alive(iterator: Any) -> bool:
    """Return whether no worker process of torch's iterator has ended, as after Ctrl-C; True for None."""
    return all(worker.is_alive() for worker in getattr(iterator, "_workers", ()))


@contextmanager
def drop_workers_on_interrupt(loader: DataLoader[Any]) -> Iterator[None]:
    """Let the next loop over a loader start new workers if Ctrl-C ends the block.

    It may have interrupted torch in the middle of a message, or in its wait for persistent workers to begin.
    """
    try:
        yield
    except KeyboardInterrupt:
        vars(loader)["_iterator"] = None
        raise


def _start_worker(start: Callable[[int], object] | None, worker: int) -> None:
    """Call a `worker_init_fn` in a worker, where `get_worker_info` has the data set of the loader."""
    info: Any = get_worker_info()
    object.__setattr__(info, "dataset", info.dataset.dataset)  # torch forbids to set it
    if start is not None:
        start(worker)


def identity(batch: Any) -> Any:
    """Return the batch unchanged, as the `collate_fn` of a loader of whole batches."""
    return batch


def _tensors(batch: Any) -> Any:
    if not isinstance(batch, dict):
        return batch
    tensors = {key: _of_tensors(value) for key, value in batch.items()}
    if type(batch) is dict:
        return tensors
    changed = {key: value for key, value in tensors.items() if value is not batch[key]}
    if changed:
        batch = copy(batch)  # of a class of its own
        for key, value in changed.items():
            batch[key] = value
    return batch


def _of_tensors(value: Any) -> Any:
    if type(value) is UnequalArrays:
        return [_tensor(array) for array in value]
    return _tensor(value) if has_torch_dtype(value) else value


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    try:
        return torch.from_numpy(native)
    except ValueError:  # torch supports no negative strides, nor those of a fraction of an item
        return torch.from_numpy(native.copy())


def _pack(batch: Any, memory: SharedArrays | None) -> Any:
    """Return the message for a batch: large arrays, bytes and strings go through shared memory, if any."""
    if type(batch) is not dict:
        return _tensors(batch)
    if memory is None:
        return _PackedBatch(None, batch, {})
    arrays = {k: array for k, value in batch.items() if (array := _array(value)) is not None}
    lists = ((key, pack_strings(value)) for key, value in batch.items() if key not in arrays)
    joined = {key: value for key, value in lists if value is not None}
    shared = {**arrays, **{key: value.data for key, value in joined.items()}}
    # If the consumer keeps so many batches that no slot is free, further ones are copied.
    large = sum(array.nbytes for array in shared.values()) >= MIN_SHARED_BYTES
    packed = memory.pack(shared) if large else None
    if packed is None:
        return _PackedBatch(None, {**batch, **arrays}, {})
    cuts = {key: value.cuts for key, value in joined.items()}
    return _PackedBatch(
        packed, {key: None if key in shared else v for key, v in batch.items()}, cuts
    )


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if type(value) is torch.Tensor:
        try:
            value = value.numpy()
        except (TypeError, RuntimeError):  # a dtype or layout that NumPy lacks
            return None
    return value if has_torch_dtype(value) else None


class _PackedBatch:
    """Message of a batch; it is unpickled by `_unpack`."""

    def __init__(
        self, packed: PackedArrays | None, rest: dict[Any, Any], cuts: dict[Any, StringLayout]
    ) -> None:
        self.parts = packed, rest, cuts

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, self.parts


def _nbytes(batch: Any) -> int:
    """Return the approximate bytes of a batch in a message; `sys.maxsize` if unknown or in shared memory."""
    packed, rest, _ = batch.parts if type(batch) is _PackedBatch else (None, {}, {})
    if packed is not None or not rest:
        return sys.maxsize
    return sum(map(message_bytes, rest.values()))


def _unpack(
    packed: PackedArrays | None, rest: dict[Any, Any], cuts: dict[Any, StringLayout]
) -> dict[Any, Any]:
    shared = {} if packed is None else unpack_arrays(packed)
    lists = {key: cut.values(shared[key]) for key, cut in cuts.items()}
    batch: dict[Any, Any] = _tensors({**rest, **shared, **lists})
    return batch
