"""Part of a loop in a worker of our loader: reading, collation, and sending by shared memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

from streamplug.adapters.collate import (
    UnequalArrays,
    collate_columns,
    collate_samples,
    has_torch_dtype,
)
from streamplug.adapters.shared_memory import (
    MIN_SHARED_BYTES,
    PackedArrays,
    SharedArrays,
    StringLayout,
    message_bytes,
    pack_strings,
    unpack_arrays,
)
from streamplug.adapters.torch_transform import RandomTransform
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DecodeError, add_note
from streamplug.run import Part, SampleRng, Session, warn_about_own_samples
from streamplug.transfer import HANDOVER, TRANSFORM
from streamplug.types import ColumnValues

if TYPE_CHECKING:
    from streamplug.adapters import torch as adapters


class BatchReader:
    """Reads the batches of a data set for a loader, in a worker or in its own process."""

    def __init__(
        self,
        dataset: adapters.StreamingDataset,
        transform: Callable[[Any], Any] | RandomTransform | None,
        collate: Callable[[list[Any]], Any] | None,
        *,
        drop_last: bool,
        shared_arrays: list[SharedArrays],
        num_threads: int,
    ) -> None:
        self.dataset = dataset
        self._transform, self._collate = transform, collate
        self._drop_last, self._threads = drop_last, num_threads
        self._shared_arrays = shared_arrays
        self._batch: list[Any] = []  # the latest, while it is taken
        # A subclass may yield other samples than those of the order.
        self._names_samples = type(dataset).__iter__ is StreamingDataset.__iter__

    @property
    def session(self) -> Session:
        """The session of the data set."""
        session: Session = self.dataset.session
        return session

    def read(self, part: Part) -> Generator[Any, None, None]:
        """Yield the batches of a part: of tensors, or in a worker what messages have of them."""
        worker = get_worker_info()
        finish: Callable[[Any], Any] = _tensors
        if worker is not None:
            shared = self._shared_arrays[worker.id] if self._shared_arrays else None
            finish = partial(_pack, memory=shared)
        with self.session.telling(part, by_any_thread=self.dataset.may_read_ahead):
            read = self._of_columns if self._collate is None else self._of_samples
            with closing(read(part)) as batches:
                yield from map(finish, batches)

    def nbytes(self, batch: Any) -> int:
        """Return the approximate bytes of a batch in a message; `sys.maxsize` if unknown or shared."""
        packed, rest, _ = batch.parts if type(batch) is _PackedBatch else (None, {}, {})
        if packed is not None or not rest:
            return sys.maxsize
        return sum(map(message_bytes, rest.values()))

    def _of_columns(self, part: Part) -> Generator[Any, None, None]:
        transform = self._transform
        finish: Callable[[Any], Any] = transform or partial(
            collate_columns, collate=default_collate
        )
        states: Callable[[], AbstractContextManager[None]] = nullcontext
        if isinstance(transform, RandomTransform):
            rng = SampleRng(self.session.run.options.shuffle_seed)
            rank, states = self.session.world.rank, transform.states
            finish = lambda columns: transform((columns, rng.of_batch(*part.latest_place(), rank)))  # noqa: E731
        again = lambda _, columns: finish(columns)  # noqa: E731
        is_timed, clock = transform is not None, part.clock
        for columns in self.dataset.batches(num_threads=self._threads):
            if self._is_kept(len(next(iter(columns.values())))):
                if is_timed:
                    clock.enter(TRANSFORM)
                with states():
                    batch = self._call(part, finish, columns, read=self._read_columns, again=again)
                if is_timed:
                    clock.leave()
                yield batch

    def _of_samples(self, part: Part) -> Generator[Any, None, None]:
        collate = cast("Callable[[list[Any]], Any]", self._collate)
        if collate is default_collate:
            collate = partial(collate_samples, collate=default_collate)
        take_batch = self._take_step if self.session.run.counts_batches else self._take_batch
        samples: Iterator[Any]
        states: Callable[[], AbstractContextManager[None]] = nullcontext
        transform = self._transform
        if isinstance(transform, RandomTransform):
            samples, states = self.dataset.samples_of(part), transform.states
        else:
            samples = iter(self.dataset)
        if transform is not None:
            samples = self._transformed(part, samples, transform)
        is_users = transform is not None or self._collate is not default_collate
        cause, clock = TRANSFORM if is_users else HANDOVER, part.clock
        again = lambda ids, samples: collate(self._transform_again(part, ids, samples))  # noqa: E731
        while True:
            clock.enter(cause)
            with states():
                batch = take_batch(samples, part)
            is_kept = bool(batch) and self._is_kept(len(batch))
            if is_kept:
                made = self._call(part, collate, batch, read=self._read_samples, again=again)
            clock.leave()
            if not batch:
                return
            if is_kept:
                yield made

    def _transformed(
        self, part: Part, samples: Iterator[Any], transform: Callable[[Any], Any]
    ) -> Iterator[Any]:
        again = lambda ids, samples: self._transform_again(part, ids, samples)[0]  # noqa: E731
        # Not map(): to its caller a StopIteration of the transform would be the end of the epoch.
        for sample in samples:
            number = len(self._batch)
            yield self._call(
                part, transform, sample, read=self._read_samples, again=again, number=number
            )

    def _call(
        self,
        part: Part,
        function: Callable[[Any], Any],
        value: Any,
        *,
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
                substitution, latest = session.make_substitution(part), part.latest_batch()
                if substitution is None or latest is None or not self._names_samples:
                    raise
                step, ids = latest[0], latest[1].tolist()
                return substitution.apply(
                    step, ids if number is None else [ids[number]], read, again
                )
        except Exception as error:
            if self._names_samples and number is None:
                _note_batch(error, self.dataset.session, part)
            elif self._names_samples:
                _note_sample(error, self.dataset.session, part, number or 0)
            raise

    def _read_columns(self, ids: Sequence[int]) -> dict[str, ColumnValues]:
        return self.dataset.session.reader.batch(np.array(ids, np.int64))

    def _read_samples(self, ids: Sequence[int]) -> list[Any]:
        return [self.dataset[sample] for sample in ids]

    def _transform_again(self, part: Part, ids: Sequence[int], samples: list[Any]) -> list[Any]:
        """Transform samples with the random numbers of those that the order has in their place."""
        transform, session = self._transform, self.dataset.session
        if transform is None:
            return samples
        latest = part.latest_batch()
        if not isinstance(transform, RandomTransform) or latest is None:
            return [transform(sample) for sample in samples]
        place = part.epoch, session.run.global_step(part.epoch, latest[0], session.world)
        rng = SampleRng(session.run.options.shuffle_seed)
        with transform.states():
            return [transform((s, rng.of_sample(*place, n))) for n, s in zip(ids, samples)]

    def _take_batch(self, samples: Iterator[Any], _: Part) -> list[Any]:
        """Return the next samples of an iterator over those of the data set, changed or not."""
        batch: list[Any] = []
        self._batch = batch
        batch.extend(islice(samples, self.session.run.batch))
        return batch

    def _take_step(self, samples: Iterator[Any], part: Part) -> list[Any]:
        """Return the samples of the next step, whose batches vary in size."""
        self._batch = batch = []
        done = part.num_steps
        for sample in samples:
            batch.append(sample)
            if part.num_steps != done:
                break
        return batch

    def _is_kept(self, size: int) -> bool:
        """Return whether a batch of some samples is not dropped as a short one."""
        run = self.dataset.session.run
        return not self._drop_last or size == run.batch or run.counts_batches


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
    """Return the `collate_fn` that a user gave a loader, whose attribute may be passed on; None for none.

    Raises:
        ConfigError: If it is no function.
    """
    if collate is not None and not callable(collate):
        raise ConfigError(f"collate_fn={collate!r:.60}: expected a function of a list of samples")
    if isinstance(collate, TransformedCollate):
        collate = collate.collate
    return None if collate is default_collate else collate


def compare_with_order(loader: adapters.StreamingDataLoader, epoch: int, step: int) -> None:
    """Warn if an epoch that ended before a step has another one, by an `__iter__` that is not the order's."""
    session, cls = loader.dataset.session, type(loader.dataset)
    if cls.__iter__ is not StreamingDataset.__iter__ and not loader.drop_last:
        steps = session.run.epoch(epoch, session.world).steps(session.world)
        warn_about_own_samples(cls.__name__, step, steps, session.world)


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


def _unpack(
    packed: PackedArrays | None, rest: dict[Any, Any], cuts: dict[Any, StringLayout]
) -> dict[Any, Any]:
    shared = {} if packed is None else unpack_arrays(packed)
    lists = {key: cut.values(shared[key]) for key, cut in cuts.items()}
    batch: dict[Any, Any] = _tensors({**rest, **shared, **lists})
    return batch


def _note_sample(error: Exception, session: Session, part: Part, number: int) -> None:
    """Name a sample of the latest batch, in which `number` samples precede it."""
    latest = part.latest_batch()
    if latest is not None and number < len(latest[1]):
        step, ids = latest
        text = session.describe(int(ids[number]), part.epoch, step)
        substitute = ", or its substitute" if session.substitution_options.enabled else ""
        add_note(error, f"raised for {text}{substitute}")


def _note_batch(error: Exception, session: Session, part: Part) -> None:
    """Name the latest batch."""
    latest = part.latest_batch()
    if latest is not None:
        call = f"dataset.explain({latest[0]}, epoch={part.epoch}, rank={session.world.rank})"
        add_note(error, f"raised for the batch of the samples that {call} lists")
