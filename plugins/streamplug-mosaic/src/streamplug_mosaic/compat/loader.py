"""`StreamingDataLoader` with batches of any size."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

import streamplug
from streamplug.errors import ConfigError, StateError
from streamplug.plan import Position
from streamplug.types import World
from streamplug_mosaic.compat.checks import BatchCountError, check_batch_size
from streamplug_mosaic.compat.dataset import StreamingDataset

_PARAMETERS = list(inspect.signature(DataLoader.__init__).parameters)[2:]
"""Names of the parameters after `dataset`, in order."""

_STATE_DICTS = (StreamingDataset.state_dict, streamplug.StreamingDataset.state_dict)


class StreamingDataLoader(streamplug.StreamingDataLoader):
    """A `streamplug.StreamingDataLoader` that also takes other data sets, and batches of another size.

    With the batch size of the data set, it reads whole batches column by column. With another, it is
    torch's `DataLoader` over the samples of the data set in order.

    A subclass may override `_get_batch_size`, by which the samples of each batch are counted.

    Args:
        dataset: The data set.
        args: As for torch's `DataLoader`.
        kwargs: Likewise, or as for `streamplug.StreamingDataLoader`.

    Attributes:
        num_samples_yielded: Samples of this rank since the loop began.

    Raises:
        ConfigError: As for `streamplug.StreamingDataLoader`.
    """

    def __init__(
        self,
        dataset: Any,
        *args: Any,
        transform: Any = None,
        batch_transform: Any = None,
        seed_torch: bool = False,
        num_threads: int = 0,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        # Trainers that build a loader anew pass on what the signature names.
        own = {
            "transform": transform,
            "batch_transform": batch_transform,
            "seed_torch": seed_torch,
            "num_threads": num_threads,
            "device": device,
        }
        own = {
            name: value
            for name, value in own.items()
            if value is not None and value is not False and value != 0
        }
        kwargs = {**dict(zip(_PARAMETERS, args)), **kwargs}
        size = kwargs.setdefault("batch_size", 1)
        is_streamed = isinstance(dataset, streamplug.StreamingDataset)
        self._is_plain = not is_streamed or dataset.batch_size not in (None, size)
        self._dataset_batch_size = dataset.batch_size if is_streamed else None
        self._follow_loop(_LoopCount())
        if not self._is_plain:
            super().__init__(dataset, **own, **_drop_empty(kwargs))
            return
        if own:
            raise ConfigError(
                f"{sorted(own)}: only if batch_size={size} of the loader is that of the data set"
            )
        if is_streamed and not kwargs.get("in_order", True):
            raise ConfigError("in_order=False: a state says how many samples were used, in order")
        DataLoader.__init__(self, dataset, **kwargs)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return DataLoader.__len__(self) if self._is_plain else super().__len__()

    def _follow_batch_size(self) -> None:
        if not self._is_plain:  # a plain loader keeps its own
            super()._follow_batch_size()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch names a class of its own
        if isinstance(self.dataset, StreamingDataset):
            check_batch_size(self._dataset_batch_size)
            self.dataset.check_epoch()
        batches = DataLoader.__iter__(self) if self._is_plain else super().__iter__()
        is_streamed = isinstance(self.dataset, streamplug.StreamingDataset)
        run = self.dataset.session.run if is_streamed else None
        num_jumps = None  # of loops that cannot tell themselves whether the position was set
        if run is not None and self._is_plain and self._dataset_batch_size is not None:
            self.dataset.session.own_counters()
            num_jumps = run.num_jumps
        own = _LoopCount()
        self._follow_loop(own)
        for batch in batches:
            if run is not None and num_jumps is not None:
                run.check_jumps(num_jumps)
            if run is not None and not own.batches:
                own.num_jumps, own.start = run.num_jumps, run.current()
            own.samples += self._get_batch_size(batch)
            own.batches += 1
            self._follow_loop(own)
            yield batch
        own.is_complete = True

    def _get_batch_size(self, batch: Any) -> int:
        """Return the number of samples of a batch; subclasses whose batches are of another type override it.

        Args:
            batch: What `collate_fn` returned: a mapping of columns, an array, or a sequence of columns or of
                samples that are mappings. With ``batch_size=None`` it is a single sample, unless the class
                of the data set has an ``__iter__`` of its own.

        Raises:
            BatchCountError: If it is something else, or empty.
        """
        if self._is_plain and self.batch_size is None and _yields_samples(self.dataset):
            return 1
        try:
            if isinstance(batch, Mapping):
                return len(next(iter(batch.values())))
            is_samples = hasattr(batch, "ndim") or isinstance(batch[0], Mapping)
            return len(batch) if is_samples else len(batch[0])
        except (LookupError, StopIteration, TypeError) as error:
            raise BatchCountError(
                f"cannot count the samples of a batch of type {type(batch).__qualname__} ({error!r}): "
                f"override {type(self).__qualname__}._get_batch_size(batch), or let collate_fn= return "
                "a mapping"
            ) from error

    def _follow_loop(self, loop: _LoopCount) -> None:
        self._loop_count = loop
        self.num_samples_yielded = loop.samples

    def state_dict(self) -> dict[str, Any] | None:  # type: ignore[override]  # None as there
        """Return the state of the training loop; None for a data set without states.

        Raises:
            StateError: If the samples so far are not whole global batches of the data set, or the sizes of
                the batches differ and another loop over it was read since the latest batch.
        """
        own = getattr(type(self.dataset), "state_dict", None)
        if not self._is_plain and own in _STATE_DICTS:  # else a subclass may add to it
            return super().state_dict()
        if not isinstance(self.dataset, streamplug.StreamingDataset):
            return None
        run, ranks = self.dataset.session.run, self.dataset.session.world.ranks
        loop = self._loop_count
        if loop.num_jumps != run.num_jumps:  # no batch was yielded since the position was set
            return self.dataset.state_dict(0, False)
        if loop.start != run.current():
            raise StateError(
                "another loop over the data set was started, or read, since the latest batch of this loader: "
                "save a state before, or use two data sets"
            )
        samples = loop.samples * ranks  # replicas count once
        if loop.is_complete and not run.counts_batches:  # the last batch of the epoch may be short
            samples += -samples % (run.batch * ranks)
        elif self._is_plain:
            self._check_workers(run.batch)
        return self.dataset.state_dict(samples, False)

    def _check_workers(self, size: int) -> None:
        """Raise `StateError` if the workers' samples so far are not the first batches of the data set.

        Workers take turns in batches of the loader, but each reads whole batches of `size` samples.
        """
        workers, loop = self.num_workers, self._loop_count
        steps = loop.samples // size
        for worker in range(workers):
            samples = len(range(worker, loop.batches, workers)) * (self.batch_size or 1)
            if samples != len(range(worker, steps, workers)) * size:
                raise StateError(
                    f"the {workers} workers have yielded {loop.samples} samples, which are not "
                    f"the first batches of {size} samples of the data set, as the loader's have "
                    f"{self.batch_size}: save a state when each worker has yielded whole batches of the data "
                    "set, or give both the same batch size"
                )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that a trainer starts; a data set without states ignores it."""
        if isinstance(self.dataset, streamplug.StreamingDataset):
            super().set_epoch(epoch)

    def resize(self, world: World, *, rewind: int = 0, batch_size: int | None = None) -> None:
        """Go on in another world; see `streamplug.StreamingDataLoader.resize`.

        Raises:
            ConfigError: Also if the loader has not the batch size of the data set.
        """
        if self._is_plain:
            raise ConfigError(
                f"resize() of a loader with batch_size={self.batch_size}, which is not that of a "
                "StreamingDataset: give both the same batch size"
            )
        super().resize(world, rewind=rewind, batch_size=batch_size)

    def load_state_dict(self, obj: Mapping[str, Any]) -> None:
        """Continue from a state; a data set without states ignores it."""
        if isinstance(self.dataset, streamplug.StreamingDataset):
            super().load_state_dict(obj)
            self._follow_loop(_LoopCount())


def _yields_samples(dataset: Any) -> bool:
    """Return whether iterating over a data set yields samples: what users' classes yield may be batches."""
    if not isinstance(dataset, streamplug.StreamingDataset):
        return False
    return type(dataset).__iter__.__module__.startswith("streamplug")


@dataclass(slots=True)
class _LoopCount:
    """Samples and batches that a loop has yielded, and when it was started."""

    samples: int = 0
    batches: int = 0
    is_complete: bool = False  # whether it has yielded all its batches
    num_jumps: int = -1  # `Run.num_jumps` at its first batch
    start: Position | None = None  # where it began, since then


def _drop_empty(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Drop arguments of torch's loader that are empty."""
    empty = {"shuffle": (None, False), "sampler": (None,), "batch_sampler": (None,)}
    return {
        name: value
        for name, value in kwargs.items()
        if not any(value is default for default in empty.get(name, ()))
    }
