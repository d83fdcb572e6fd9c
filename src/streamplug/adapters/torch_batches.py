"""Part of a loop in a worker of our loader: reading, collation, and sending by shared memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

from streamplug.adapters.shared_memory import (
    MIN_SHARED_BYTES,
    PackedArrays,
    SharedArrays,
    StringLayout,
    message_bytes,
    pack_strings,
    unpack_arrays,
)
from streamplug.adapters.torch_collate import (
    UnequalArrays,
    collate_columns,
    collate_samples,
    has_torch_dtype,
)
from streamplug.adapters.torch_transform import RandomTransform
from streamplug.dataset import overrides
from streamplug.errors import ConfigError, DecodeError, add_note
from streamplug.heap import share_freed_memory
from streamplug.plugin_kit import check
from streamplug.run import Block, Part, Session, ThreadRng, warn_about_own_samples
from streamplug.transfer import HANDOVER, MIN_BLOCK_SECONDS, TRANSFORM, job_clock, map_threads
from streamplug.types import ColumnValues, Int64

if TYPE_CHECKING:
    from streamplug.adapters import torch as adapters

_DROPPED = object()  # in place of a short batch


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
        self._rngs: ThreadRng  # of the loop that is read for
        # A subclass may yield others than those of the order.
        read = "batches" if collate is None else "__iter__"
        self._names_samples = not overrides(dataset, read)

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
        self._rngs = ThreadRng(self.session.run.options.shuffle_seed)
        with self.session.telling(part, by_any_thread=self.dataset.may_read_ahead):
            if self._uses_threads:
                read = self._in_threads
            else:
                read = self._of_columns if self._collate is None else self._of_samples
            with closing(read(part)) as batches:
                yield from map(finish, batches)

    @property
    def _uses_threads(self) -> bool:
        """Whether threads run the functions of the user; a subclass may read in another way than they do."""
        has_functions = self._transform is not None or self._collate is not None
        return self._threads > 0 and has_functions and not self.dataset.may_read_ahead

    def nbytes(self, batch: Any) -> int:
        """Return the approximate bytes of a batch in a message; `sys.maxsize` if unknown or shared."""
        packed, rest, _ = batch.parts if type(batch) is _PackedBatch else (None, {}, {})
        if packed is not None or not rest:
            return sys.maxsize
        return sum(map(message_bytes, rest.values()))

    def _of_columns(self, part: Part) -> Generator[Any, None, None]:
        transform, dataset, clock = self._transform, self.dataset, part.clock
        value: Any  # columns, and their generator if the transform takes one
        batches: Iterator[Any]
        states: Callable[[], AbstractContextManager[None]] = nullcontext
        if isinstance(transform, RandomTransform):
            batches, states = dataset.batches_of(part, num_threads=self._threads), transform.states
        else:
            batches = dataset.batches(num_threads=self._threads)
        finish, again = transform or collate_columns, self._columns_again(part)
        for value in batches:
            columns = value[0] if isinstance(transform, RandomTransform) else value
            if self._is_kept(len(next(iter(columns.values())))):
                if transform is not None:
                    clock.enter(TRANSFORM)
                with states():
                    batch = self._call(part, part.latest_batch, finish, value, again=again)
                if transform is not None:
                    clock.leave()
                yield batch

    def _of_samples(self, part: Part) -> Generator[Any, None, None]:
        collate = self._sample_collate()
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
        again = self._collate_again(part, collate)
        while True:
            clock.enter(cause)
            with states():
                batch = take_batch(samples, part)
            is_kept = bool(batch) and self._is_kept(len(batch))
            if is_kept:
                made = self._call(part, part.latest_batch, collate, batch, again=again)
            clock.leave()
            if not batch:
                return
            if is_kept:
                yield made

    def _transformed(
        self, part: Part, samples: Iterator[Any], transform: Callable[[Any], Any]
    ) -> Iterator[Any]:
        again = self._one_again(part)
        # Not map(): to its caller a StopIteration of the transform would be the end of the epoch.
        for sample in samples:
            number = len(self._batch)
            yield self._call(part, part.latest_batch, transform, sample, again=again, number=number)

    def _in_threads(self, part: Part) -> Generator[Any, None, None]:
        """Yield the batches that threads make, with the functions of the user; see `_make_batch`."""
        session = self.session
        reader = session.reader
        read: Callable[[Block], Any] = lambda block: reader.rows(block.ids)  # noqa: E731
        if self._collate is None:
            read = lambda block: list(reader.batches(block.ids, block.parts))  # noqa: E731
        self.dataset.check_epoch()
        share_freed_memory()
        # A block has one batch, so that a loop that is left waits for no others, and few are in memory.
        blocks = session.read(read, 1, self._threads, partial(self._make_batches, part))
        with closing(blocks):
            for _, block, batches in blocks:
                for (step, _), batch in zip(part.steps(block), batches):
                    part.advance(step)
                    if batch is not _DROPPED:
                        yield batch

    def _make_batches(self, part: Part, block: Block, values: Any) -> list[Any]:
        """Return the batches of a block: of its rows, or of the columns of each."""
        clock = job_clock() or part.clock
        clock.enter(TRANSFORM)
        batches = []
        for number, (step, own) in enumerate(block.places()):
            ids = block.ids[own]
            if not self._is_kept(len(ids)):
                batches.append(_DROPPED)
            elif self._collate is None:
                batches.append(self._make_of_columns(part, step, ids, values[number]))
            else:
                batches.append(self._make_of_samples(part, step, ids, values[own]))
        clock.leave()
        return batches

    def _make_of_columns(self, part: Part, step: int, ids: Int64, columns: Any) -> Any:
        again = self._columns_again(part)
        return self._call(
            part, lambda: (step, ids), partial(again, step, ids), columns, again=again
        )

    def _make_of_samples(self, part: Part, step: int, ids: Int64, samples: list[Any]) -> Any:
        collate = self._sample_collate()
        latest: Callable[[], tuple[int, Int64]] = lambda: (step, ids)  # noqa: E731
        transform, changed = self._transform, samples
        if transform is not None:
            again, with_rng = self._one_again(part), self._with_rng(part, step)

            def call(number: int) -> Any:
                check()  # a loop that was left waits for no further sample
                value = with_rng(ids[number], samples[number])
                return self._call(part, latest, transform, value, again=again, number=number)

            changed = self._map(call, len(samples))
        return self._call(part, latest, collate, changed, again=self._collate_again(part, collate))

    def _map(self, call: Callable[[int], Any], count: int) -> list[Any]:
        """Return the results of a function of each number of a sample in a batch.

        The first batches are made on the thread of the loop, as making them may take little time. If that
        takes longer, the rest of such a batch is made on threads at once, so that it comes soon.
        """
        is_job = job_clock() is not None
        results: list[Any] = []
        end = perf_counter() + MIN_BLOCK_SECONDS
        while len(results) < count and (is_job or perf_counter() < end):
            results.append(call(len(results)))
        results += map_threads(call, range(len(results), count), self._threads)
        return results

    def _with_rng(self, part: Part, step: int) -> Callable[[int, Any], Any]:
        """Return a function of the ids and samples of a step, which returns what the transform takes.

        That is a sample, with the random numbers of an id if it draws some.
        """
        if not isinstance(self._transform, RandomTransform):
            return lambda _, sample: sample
        session, rngs = self.session, self._rngs
        place = part.epoch, session.run.global_step(part.epoch, step, session.world)
        return lambda sample_id, sample: (sample, rngs.rng.of_sample(*place, int(sample_id)))

    def _sample_collate(self) -> Callable[[list[Any]], Any]:
        collate = cast("Callable[[list[Any]], Any]", self._collate)
        return collate_samples if collate is default_collate else collate

    def _call(
        self,
        part: Part,
        latest: Callable[[], tuple[int, Int64] | None],
        function: Callable[[Any], Any],
        value: Any,
        *,
        again: Callable[[int, Sequence[int], Any], Any],
        number: int | None = None,
    ) -> Any:
        """Return the result of a user's function for the batch of `latest`, or for the sample `number` in it.

        Samples that it cannot decode are substituted: `again` is called with the step, the ids of the order
        and the samples or columns in their place; see `Substitution.apply`.
        """
        try:
            try:
                return function(value)
            except DecodeError:
                substitution, place = self.session.make_substitution(part), latest()
                if substitution is None or place is None or not self._names_samples:
                    raise
                step, ids = place[0], place[1].tolist()
                read = self._read_columns if self._collate is None else self._read_samples
                return substitution.apply(
                    step, ids if number is None else [ids[number]], read, partial(again, step)
                )
        except Exception as error:
            place = latest() if self._names_samples else None
            if place is not None and number is None:
                _note_batch(error, self.session, part.epoch, place[0])
            elif place is not None and number is not None and number < len(place[1]):
                _note_sample(error, self.session, part.epoch, place[0], int(place[1][number]))
            raise

    def _read_columns(self, ids: Sequence[int]) -> dict[str, ColumnValues]:
        return self.dataset.session.reader.batch(np.array(ids, np.int64))

    def _read_samples(self, ids: Sequence[int]) -> list[Any]:
        return [self.dataset[sample] for sample in ids]

    def _transform_again(
        self, part: Part, step: int, ids: Sequence[int], samples: list[Any]
    ) -> list[Any]:
        """Transform samples with the random numbers of those that the order has in their place."""
        transform = self._transform
        if transform is None:
            return samples
        random = transform if isinstance(transform, RandomTransform) else None
        with random.states() if random is not None else nullcontext():
            return [transform(value) for value in map(self._with_rng(part, step), ids, samples)]

    def _columns_again(self, part: Part) -> Callable[[int, Any, dict[str, ColumnValues]], Any]:
        transform = self._transform
        if isinstance(transform, RandomTransform):
            epoch, rank, rngs = part.epoch, self.session.world.rank, self._rngs
            return lambda step, _, columns: transform(
                (columns, rngs.rng.of_batch(epoch, step, rank))
            )
        finish = transform or collate_columns
        return lambda _, __, columns: finish(columns)

    def _one_again(self, part: Part) -> Callable[[int, Sequence[int], list[Any]], Any]:
        return lambda *place: self._transform_again(part, *place)[0]

    def _collate_again(
        self, part: Part, collate: Callable[[list[Any]], Any]
    ) -> Callable[[int, Sequence[int], list[Any]], Any]:
        return lambda *place: collate(self._transform_again(part, *place))

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
            return collate_samples(changed)
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
    """Warn if an epoch that ended before a step has another one, by a method that is not the order's."""
    dataset = loader.dataset
    if not loader.drop_last and dataset.may_read_ahead:
        name = next(name for name in ("__iter__", "batches") if overrides(dataset, name))
        run, world = dataset.session.run, dataset.session.world
        steps = run.epoch(epoch, world).steps(world)
        warn_about_own_samples(f"{type(dataset).__name__}.{name}", step, steps, world)


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


def _note_sample(error: Exception, session: Session, epoch: int, step: int, sample: int) -> None:
    text = session.describe(sample, epoch, step)
    substitute = ", or its substitute" if session.substitution_options.enabled else ""
    add_note(error, f"raised for {text}{substitute}")


def _note_batch(error: Exception, session: Session, epoch: int, step: int) -> None:
    call = f"dataset.explain({step}, epoch={epoch}, rank={session.world.rank})"
    add_note(error, f"raised for the batch of the samples that {call} lists")
