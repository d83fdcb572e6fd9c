"""`StreamingDataset` and `StreamingDataLoader` for torch: workers, collation and devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Generator as GeneratorType
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.random import Generator
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_collate

from streamplug import dataset
from streamplug.adapters.accelerate import check_division
from streamplug.adapters.headspace import Headspace, measure_headspace
from streamplug.adapters.shared_memory import SharedArrays
from streamplug.adapters.torch_batches import (
    BatchReader,
    TransformedCollate,
    compare_with_order,
    own_collate,
)
from streamplug.adapters.torch_device import find_device, move_batches
from streamplug.adapters.torch_placement import TorchPlacement
from streamplug.adapters.torch_transfers import TorchSource, share_memory
from streamplug.adapters.torch_transform import random_transform
from streamplug.adapters.torch_workers import Assignment, WorkerPool
from streamplug.adapters.worker_choice import choose_workers, with_workers
from streamplug.config import Configurable, whole_number
from streamplug.dataset import overrides
from streamplug.display import ObjectSummary, SummaryRepr
from streamplug.errors import ConfigError
from streamplug.run import Loop, Part, closed_at_exit, warn_about_subsets, warn_about_timeout
from streamplug.transfer import HANDOVER
from streamplug.types import ColumnValues, Sample, World


class StreamingDataset(dataset.StreamingDataset, IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only  # noqa: D101 - below
    __doc__ = dataset.StreamingDataset.__doc__

    placement_class = TorchPlacement

    if not TYPE_CHECKING:  # type checkers see the arguments of the base class

        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self._session.share_counters()

    def as_source(self) -> TorchSource:
        """Return the stored samples by sample id; see `streamplug.dataset.StreamingDataset.as_source`."""
        return TorchSource(self)

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return many samples by sample id; torch's `Subset` calls this for each batch."""
        warn_about_subsets(len(self), self.size, self._session.world)
        samples: list[Sample] = (
            [self[index] for index in indices] if self.one_by_one else self[list(indices)]
        )
        return samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that a trainer starts; see `streamplug.dataset.StreamingDataset.set_epoch`.

        Raises:
            ConfigError: If Accelerate, whose loaders call this when a loop begins, divides the data set among
                ranks a second time.
        """
        check_division(self)
        super().set_epoch(epoch)

    def __copy__(self) -> StreamingDataset:
        make_copy, arguments, saved = self.__reduce__()
        copied: StreamingDataset = make_copy(*arguments)
        copied.__setstate__({**saved, "cells": saved["cells"].clone()})  # no longer shared memory
        return copied

    def __getstate__(self) -> dict[str, Any]:
        session = self._session
        home = session.monitor.observer.counters.home
        placement = cast("TorchPlacement", session.placement)
        sets = session.run.shared.sets
        more = {"cells": placement.cells, "sets": sets, "home": home}
        return super().__getstate__() | more

    def __setstate__(self, saved: dict[str, Any]) -> None:
        super().__setstate__(saved)
        cells, sets, home = saved["cells"], saved["sets"], saved["home"]
        if not cells.is_shared():  # a copy not made by torch has its own counters
            cells, sets, home = share_memory(torch.zeros_like(cells)), None, os.getpid()
        cast("TorchPlacement", self._session.placement).cells = cells
        self._session.count_in(cells.numpy(), sets, home)


class StreamingDataLoader(SummaryRepr, Configurable, DataLoader, section="loader"):  # type: ignore[type-arg]  # generic in its stubs only
    """A torch `DataLoader` that yields whole batches and has an exact state.

    Each loop reads an epoch, or the rest of one after `load_state_dict`. A loop that is left by ``break`` is
    over, and the next one reads the next epoch: to read the rest, keep ``iter(loader)``, or load the state.
    ``len(loader)`` is the number of batches of a whole epoch on this rank. The last batch is filled with
    samples from the start of the epoch, so that `drop_last` drops nothing; with ``partition_algo="orig"`` or
    ``"relaxed"`` it may be short, and `len` counts it unless `drop_last` drops it.

    Workers read batches column by column into memory shared with this process. Its tensors are views of that
    memory until the last tensor of a batch is dropped here: pass a copy to a forked process that reads a
    batch later. With `collate_fn` or `transform`, samples are read one by one.

    A transform with two required parameters, according to `inspect.signature`, is called with a random
    generator as well; one whose signature cannot be read, with one argument. The generator of a sample
    depends on `shuffle_seed`, the epoch, the step and the sample id alone, so its numbers are the same on any
    number of nodes, ranks and workers, and after a resume; see `streamplug.sample_rng`. That of a batch
    depends on the rank instead of the sample: it is the same after a resume on as many ranks. A generator is
    set anew for each call. Numbers that are drawn elsewhere, such as in `collate_fn`, are not reproducible.

    Args:
        dataset: A `StreamingDataset`.
        batch_size: Samples per batch, equal to the data set's; None for the data set's. Sets the data set's
            if that has none.
        transform: Applied in the worker to each sample, a dict; its results are collated. Called with
            ``(sample)`` or ``(sample, rng)``.
        batch_transform: Applied in the worker to each batch: takes the values by column name, an array whose
            first axis has length `batch_size` or a list, and returns the batch. Called with ``(batch)`` or
            ``(batch, rng)``.
        collate_fn: Makes a batch of a list of samples; None, or torch's `default_collate`, collates as torch
            does.
        seed_torch: Whether to seed torch's CPU generator, `random` and `numpy.random` around each call of the
            transform, for transforms that draw from these; the states are restored after each batch.
        num_threads: Threads per reading process that read, decode and run your functions ahead of use, if a
            batch takes long enough; 0 does all on demand. The functions must be thread-safe.
        device: Device to which batches are copied. Copies to a CUDA device go through pinned memory, on a
            separate stream, one batch ahead of use. None leaves batches in host memory.
        **kwargs: As for `torch.utils.data.DataLoader`. With ``num_workers="auto"``, it chooses between
            this process, threads and worker processes; without workers, their options have no effect. Batches
            of limited cost are never dropped. Batches always come in order: with ``in_order=False``, they
            would come as workers finish them, and a state, which counts batches, would not say which were
            used.

    Raises:
        ConfigError: If the batch sizes differ, `in_order` is false, `timeout` lacks workers, `num_threads`
            comes with `seed_torch`, `batch_transform` with `transform` or `collate_fn`, or either with a data
            set that changes samples, if a transform requires other parameters, `seed_torch` has none to seed,
            or there is no `device`.
    """

    dataset: StreamingDataset  # the constructor takes no other
    # Trainers build another loader of attributes that have the names of the arguments.
    transform: Callable[..., Any] | None = None
    batch_transform: Callable[..., Any] | None = None
    seed_torch: bool = False
    num_threads: int = 0
    device: torch.device | None = None
    # Keeps Accelerate from splitting batches among ranks again, and puts the state into its checkpoints.
    _is_accelerate_prepared = use_stateful_dataloader = True

    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int | None = None,
        *,
        transform: Callable[[Sample], Any] | Callable[[Sample, Generator], Any] | None = None,
        batch_transform: Callable[[dict[str, ColumnValues]], Any]
        | Callable[[dict[str, ColumnValues], Generator], Any]
        | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        seed_torch: bool = False,
        num_threads: int = 0,
        device: str | torch.device | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise ConfigError(
                f"StreamingDataLoader loads a streamplug.StreamingDataset, not {dataset!r:.60}"
            )
        num_threads = whole_number("num_threads", num_threads, 0) or 0
        collate_fn = own_collate(collate_fn)
        if kwargs.get("num_workers") == "auto":
            if num_threads:
                raise ConfigError("num_workers='auto' chooses num_threads=, too: leave that out")
            functions = (transform, batch_transform, collate_fn)
            has_functions = any(function is not None for function in functions)
            workers, num_threads = choose_workers(
                dataset, has_functions=has_functions, seed_torch=seed_torch
            )
            kwargs = with_workers(kwargs, workers)
        if not kwargs.get("in_order", True):
            raise ConfigError(
                "in_order=False: a state says how many batches were used, in order, and not which ones; "
                "leave it out"
            )
        if kwargs.get("timeout") and not kwargs.get("num_workers"):
            raise ConfigError("timeout= is of worker processes: give it with num_workers= above 0")
        if num_threads and seed_torch:
            raise ConfigError(
                "seed_torch=True seeds generators that all threads of a process share: take the generator "
                "of a transform(sample, rng), or use num_workers= instead of num_threads="
            )
        if batch_transform is not None and (transform or collate_fn) is not None:
            raise ConfigError(
                "batch_transform= takes columns, transform= and collate_fn= samples: give either"
            )
        random_transform(seed_torch, transform=transform, batch_transform=batch_transform)
        has_own_iter = overrides(dataset, "__iter__")
        changes_samples = dataset.one_by_one or has_own_iter
        if changes_samples and (num_threads or batch_transform is not None):
            raise ConfigError(
                f"num_threads= and batch_transform= read stored samples, but {type(dataset).__name__} makes "
                "samples of its own; use transform= with num_workers=, or change samples in transform="
            )
        if dataset.session.run.counts_batches and has_own_iter:
            raise ConfigError(
                f"batching_method={dataset.batching_method!r}: batches end where its steps end, but "
                f"{type(dataset).__name__} has an __iter__ of its own; change samples in __getitem__ or in "
                "transform="
            )
        patience = max(stream.patience.seconds for stream in dataset.streams)
        warn_about_timeout(kwargs.get("timeout") or 0, patience, dataset.session.world)
        found_device = find_device(device)
        super().__init__(dataset, batch_size=1, collate_fn=collate_fn, **kwargs)
        # A call that fails before leaves it as it was.
        dataset.session.run.use_batch_size(batch_size)
        self._follow_batch_size()
        self.transform, self.batch_transform, self.seed_torch = (
            transform,
            batch_transform,
            seed_torch,
        )
        self.num_threads, self.device = num_threads, found_device
        self._changes_samples = changes_samples
        # Some trainers call set_epoch of the sampler only, or of that of a copy of the loader.
        vars(self.sampler)["set_epoch"] = partial(_follow_trainer, dataset)
        self._pool: WorkerPool | None = None  # persistent workers that wait for a loop

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """What makes a batch of samples as this loader does, for other loaders over its data set."""
        collate: Callable[[list[Any]], Any] = vars(self)["collate_fn"]
        if self.transform is None and self.batch_transform is None:
            return collate
        return TransformedCollate(collate, self._used_transform, self.batch_transform is not None)

    @collate_fn.setter
    def collate_fn(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        vars(self)["collate_fn"] = own_collate(collate_fn) or default_collate

    @property
    def _used_transform(self) -> Any:
        return random_transform(
            self.seed_torch, transform=self.transform, batch_transform=self.batch_transform
        )

    def _make_reader(self) -> BatchReader:
        collate = vars(self)["collate_fn"]
        by_sample = self.transform is not None or self._changes_samples
        return BatchReader(
            self.dataset,
            self._used_transform,
            collate if by_sample or collate is not default_collate else None,
            drop_last=self.drop_last,
            shared_arrays=self._make_shared_arrays(),
            num_threads=self.num_threads,
        )

    def __len__(self) -> int:
        """Return the number of batches of an epoch, of the next one if batches vary in size."""
        run = self.dataset.session.run
        self._follow_batch_size()  # of a change of the world by the data set
        return run.steps(self.dataset.session.world) if run.counts_batches else super().__len__()

    def _make_shared_arrays(self) -> list[SharedArrays]:
        if not SharedArrays.possible():
            return []
        # One slot for each prefetched batch, for the batch in use, and for the one being made.
        return [SharedArrays((self.prefetch_factor or 0) + 2) for _ in range(self.num_workers)]

    def __iter__(self) -> LoopIterator:  # type: ignore[override]  # torch names a class of its own
        return LoopIterator(self)

    @closed_at_exit
    def run_loop(self, loops: list[Loop]) -> GeneratorType[Any, None, None]:
        """Yield the batches of a loop, which is appended to a list when it begins."""
        session = self.dataset.session
        loop = session.begin()
        loops.append(loop)
        clock = loop.clock
        try:
            with session.looping(loop), self._reading(loop) as read:
                while True:
                    clock.enter(HANDOVER)
                    with closing(read()) as batches:
                        for step, batch in enumerate(move_batches(batches, self.device), loop.step):
                            loop.advance(step)
                            clock.leave()
                            yield batch
                            if loop.is_outdated:
                                session.leave(batches)
                                break
                            clock.enter(HANDOVER)
                        else:
                            clock.leave()
                    if self._is_complete(loop) or not loop.follow():
                        break
                    self._follow_batch_size()
                compare_with_order(self, loop.epoch, loop.step)
                loop.end()
        except GeneratorExit as error:
            # Its frames refer to the workers, which are to end now. Those of contextlib refer to the error
            # before Python 3.11, and would be freed with other cycles only.
            raise error.with_traceback(None)  # noqa: B904

    def _is_complete(self, loop: Loop) -> bool:
        """Return whether all batches were handed out, but perhaps for a last one that is dropped."""
        session = self.dataset.session
        run, world = session.run, session.world
        if loop.is_complete or not self.drop_last or run.counts_batches:
            return loop.is_complete
        plan = run.epoch(loop.epoch, world)
        last = plan.steps(world) - 1
        return loop.step == last and len(plan.ids(world, np.array([last]))[0]) < run.batch

    @contextmanager
    def _reading(self, loop: Loop) -> Iterator[Callable[[], GeneratorType[Any, None, None]]]:
        """Yield a function that returns the batches of a loop from its position on."""
        session = self.dataset.session
        self._follow_batch_size()
        if (
            session.run.counts_batches
        ):  # planned once here, in parallel: workers may not start processes
            session.run.epoch(loop.epoch, session.world)
        if not self.num_workers and not self.pin_memory:
            reader = self._make_reader()  # torch's iterator would only add overhead
            yield lambda: reader.read(Part(loop.position, loop.number, loop.clock))
            return
        pool = self._take_pool()

        def read() -> GeneratorType[Any, None, None]:
            assignment = Assignment(session.snapshot(), loop.position, loop.number)
            batches = pool.read(assignment, loop.clock)
            # Where trainers look for persistent workers, to end them.
            self._iterator = pool.iterator
            return batches

        with pool.lease(), self._progress_line():
            yield read

    def _take_pool(self) -> WorkerPool:
        """Return the workers that wait, or new ones if they are busy or ended, or as many are not wanted."""
        pool = self._pool
        is_same = pool is not None and pool.iterator is self._iterator is not None
        if pool is not None and is_same and pool.num_workers == self.num_workers and pool.is_free:
            return pool
        self._iterator = None
        same = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
        more = ("generator", "prefetch_factor", "persistent_workers", "pin_memory_device")
        settings = {name: getattr(self, name) for name in (*same, *more)}
        pool = WorkerPool(self._make_reader(), **settings)
        self._pool = pool if self.persistent_workers else None
        return pool

    def _follow_batch_size(self) -> None:
        batch_size = self.dataset.session.run.batch
        vars(self)["batch_size"] = batch_size  # torch forbids to set it
        if isinstance(self.batch_sampler, BatchSampler):
            self.batch_sampler.batch_size = batch_size

    def _progress_line(self) -> AbstractContextManager[None]:
        # Without workers the data set is iterated over in this process, and shows its own progress.
        session = self.dataset.session
        fetches = session.feed.remote and self.num_workers > 0
        return session.monitor.progress_line(session.placement.rank(), fetches)

    def headspace(self, steps: int = 50) -> Headspace:
        """Measure how fast a loop over this loader could be if its step took no time.

        The batches that the latest loop had last, whose data is at hand, are read once more as fast as
        possible, with the same workers, threads, transforms and device. The position, the order and the
        statistics stay as they are, and a loop that runs goes on.

        Args:
            steps: Number of batches to measure; fewer if the loop had fewer.

        Returns:
            The rates of the fastest possible loop, and what the loop reached; ``factor`` is their ratio.

        Raises:
            ConfigError: If `steps` is less than 2, or no loop had as many batches.
        """
        return measure_headspace(self, steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batch yielded last; the generators of transforms follow from it.

        It is the state of the data set: that of the loop that was advanced last in this process, whatever
        loops of torch's own loader have read. The iterator of a loop has a `state_dict` of its own.
        """
        session = self.dataset.session
        session.own_counters()
        return session.run.state(session.world, ignore_others=True)

    def resize(self, world: World, *, rewind: int = 0, batch_size: int | None = None) -> None:
        """Go on in another world from the next global batch on; see `StreamingDataset.resize`.

        A running loop goes on with the same workers, which drop what they have read ahead.

        Args:
            world: Place of this process from now on.
            rewind: Number of global batches, yielded last, that come again, because their step failed.
            batch_size: Samples per batch of one rank from here on; None keeps the global batch.

        Raises:
            ConfigError: As for `StreamingDataset.resize`.
        """
        self.dataset.session.resize(world, rewind, batch_size, ignore_others=True)
        self._follow_batch_size()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from a state; see `StreamingDataset.load_state_dict`."""
        self.dataset.load_state_dict(saved)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that a trainer starts; optional.

        It has an effect on a new run, which begins with this epoch, and on a loaded state: if the trainer had
        read all batches of an epoch, or names a later epoch than that in which it saved the state, its epoch
        was over, and the next loop is the next epoch.

        Args:
            epoch: The trainer's epoch number, from 0.
        """
        _follow_trainer(self.dataset, epoch)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.dataset!r}>"

    def object_summary(self) -> ObjectSummary:
        """Return a summary of options and the data set."""
        names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "drop_last")
        own = [(name, f"{getattr(self, name, None)}") for name in names]
        if not isinstance(self.dataset, SummaryRepr):
            facts = [*own, ("data set", type(self.dataset).__name__)]
            return ObjectSummary(type(self).__name__, facts)
        of = self.dataset.object_summary()
        facts = [*own, ("data set", of.name), *of.facts]
        return ObjectSummary(type(self).__name__, facts, of.heads, of.rows)


class LoopIterator:
    """Iterator over the batches of a loop, which begins with the first one."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self._session = loader.dataset.session
        self._loops: list[Loop] = []
        self._batches = loader.run_loop(self._loops)

    def __iter__(self) -> LoopIterator:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """Leave the loop."""
        self._batches.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this loop, whatever other loops have read."""
        session = self._session
        if not self._loops:
            return session.next_state()
        loop = self._loops[0]
        return session.run.state_at(session.world, loop.position, loop.trainer_epoch)


def _follow_trainer(dataset: StreamingDataset, epoch: int) -> None:
    dataset.session.follow_trainer(epoch)
