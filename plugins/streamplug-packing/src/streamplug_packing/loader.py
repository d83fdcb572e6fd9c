"""Loader of torch that yields packs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.random import Generator
from torch.utils._pytree import tree_map_only
from torch.utils.data import default_collate

from streamplug.adapters import (
    RandomTransform,
    StreamingDataLoader,
    StreamingDataset,
    TransformedCollate,
    find_device,
    has_torch_dtype,
    move_batches,
    own_collate,
    random_transform,
)
from streamplug.errors import ConfigError
from streamplug.types import Sample, World
from streamplug_packing.collate import collate_pack, concatenate_arrays
from streamplug_packing.collators import SequenceCollator
from streamplug_packing.options import PackingOptions
from streamplug_packing.samples import PackIterable
from streamplug_packing.source import PackSource
from streamplug_packing.state import SamplePlace
from streamplug_packing.stream import PackStream


class PackingDataLoader(PackIterable, StreamingDataLoader):  # type: ignore[misc]  # torch's __iter__ names a class
    """A `StreamingDataLoader` that yields packs of samples, whose sizes are known only after a transform.

    Workers read and transform samples; they are packed in this process, so that packs do not depend on the
    number of workers. What is said of `streamplug_packing.samples.PackedSamples` applies, which is the same
    without torch.

    Args:
        dataset: A `StreamingDataset`.
        batch_size: Samples that are read per step, equal to the data set's `batch_size`; None for that.
        length, size, open_bins, max_samples, packs_per_epoch: As for `PackedSamples`.
        transform: As for `PackedSamples`, but applied in the worker.
        collate_fn: As for `PackedSamples`, but None returns a dict of tensors.
        device: Device to which packs are copied, one ahead of use; None leaves them in host memory.
        pin_memory: Whether packs are in pinned memory. Copies to `device` need no such packs.
        **kwargs: As for `StreamingDataLoader`.

    Raises:
        ConfigError: If an argument is invalid, or has no meaning for packs: `batch_transform`,
            `num_threads`, `drop_last`.
        DataError: While iterating, if the size of a sample is no whole number from 1 to `length`.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        batch_size: int | None = None,
        *,
        length: int,
        size: str | Callable[[Any], int],
        open_bins: int = 64,
        max_samples: int | None = None,
        packs_per_epoch: int | None = None,
        transform: Callable[[Sample], Any] | Callable[[Sample, Generator], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        device: str | torch.device | None = None,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("drop_last"):
            raise ConfigError("drop_last=True: packs are made of all samples; leave it out")
        for name in ("batch_transform", "num_threads"):
            if kwargs.get(name):
                raise ConfigError(f"{name}= is for batches of columns; packs are made of samples")
        if kwargs.get("num_workers") == "auto":
            raise ConfigError(
                "num_workers='auto' may choose threads; packs need a number of workers"
            )
        collate_fn = own_collate(collate_fn)
        options = PackingOptions(length, size, open_bins, max_samples, packs_per_epoch)
        reading = {"transform": transform, "collate_fn": _pack_message, **kwargs}
        super().__init__(dataset, batch_size, **reading)
        place = find_device(device)
        if pin_memory and not torch.cuda.is_available():
            raise ConfigError("pin_memory=True: torch finds no CUDA device; leave it out")
        # Trainers build another loader of attributes that have the names of the arguments.
        self.length, self.size, self.open_bins = length, size, open_bins
        self.max_samples, self.packs_per_epoch = max_samples, packs_per_epoch
        self.device, self.pin_memory = place, pin_memory
        self.collate_fn = collate_fn or default_collate
        # A loader of its own, so that the loop over it does not refer to this one.
        samples = StreamingDataLoader(dataset, batch_size, **reading)
        source = _LoaderSource(
            samples,
            transform,
            collate_fn,
            pin_memory=pin_memory,
            seed_torch=kwargs.get("seed_torch", False),
        )
        stream = PackStream(source, options)
        self.set_stream(stream, partial(move_batches, device=place))
        # Some trainers call set_epoch of the sampler only, or of that of a copy of the loader.
        vars(self.sampler)["set_epoch"] = partial(_follow_trainer, stream)

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """A function that raises: loaders of others would yield samples, not packs."""
        return _NoPacks(vars(self)["collate_fn"], self.transform, is_of_batches=False)

    @collate_fn.setter
    def collate_fn(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        vars(self)["collate_fn"] = own_collate(collate_fn) or default_collate

    def resize(self, world: World, *, rewind: int = 0, batch_size: int | None = None) -> NoReturn:
        """Refuse to go on in another world: the samples of open bins would be lost.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"resize({world}) of packs: save the state_dict() of all ranks, and give it, or the list of them "
            "without a process group, to load_state_dict() of loaders in the other world, which hands over "
            "the samples of open bins"
        )

    def headspace(self, steps: int = 50) -> NoReturn:
        """Refuse to measure packs.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "headspace() reads batches once more, and packs depend on the samples before them; loop over "
            "the loader without the training step instead"
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that a trainer starts; see `StreamingDataLoader.set_epoch`.

        With `packs_per_epoch` it has no effect: a loop goes on where the last one ended.
        """
        _follow_trainer(self._stream, epoch)


class _NoPacks(TransformedCollate):
    """What a loader of others finds as the `collate_fn` of a `PackingDataLoader`."""

    def __call__(self, samples: list[Any]) -> NoReturn:
        """Refuse to make a pack of the samples of a step.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "collate_fn of a PackingDataLoader was called by another loader, which cannot make "
            "packs; use the PackingDataLoader itself, and its load_state_dict() to go on within an epoch, "
            "instead of skipping packs"
        )


def _follow_trainer(stream: PackStream, epoch: int) -> None:
    if stream.options.packs_per_epoch is None:
        stream.lead_dataset()
        stream.source.session.follow_trainer(epoch)


class _LoaderSource(PackSource):
    """Samples that a loader's workers read, and packs of tensors."""

    def __init__(
        self,
        loader: StreamingDataLoader,
        transform: Callable[..., Any] | None,
        collate_fn: Callable[[list[Any]], Any] | None,
        *,
        pin_memory: bool,
        seed_torch: bool,
    ) -> None:
        super().__init__(loader.dataset, transform, collate_fn)
        self._random_transform = random_transform(seed_torch, transform=transform)
        self._loader, self._pins = loader, pin_memory

    def go_to(self, order_state: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(order_state)

    def read_epoch(self) -> Iterator[list[Any]]:
        return iter(self._loader)

    def receive(self, places: Sequence[SamplePlace], samples: list[Any]) -> list[Any]:
        if not self._loader.num_workers:
            return samples
        message: list[Any] = tree_map_only(_TensorArray, _to_tensor, samples)
        return message

    def transform(self, places: Sequence[SamplePlace], samples: list[Any]) -> list[Any]:
        transform = self._random_transform
        with transform.states() if isinstance(transform, RandomTransform) else nullcontext():
            return super().transform(places, samples)

    def call(self, function: Callable[..., Any], sample: Any, place: SamplePlace) -> Any:
        transform = self._random_transform
        if isinstance(transform, RandomTransform):
            return transform((sample, self.rng(place)))
        return super().call(function, sample, place)

    def collate(self, samples: list[Any], sizes: list[int], sample_ids: list[int]) -> Any:
        if self._collate_fn is None:
            pack = _to_tensors(collate_pack(samples, sizes, sample_ids, _concatenate))
        else:
            pack = self._collate_fn(samples)
            if isinstance(self._collate_fn, SequenceCollator):
                pack = _to_tensors(pack)
        return tree_map_only(torch.Tensor, torch.Tensor.pin_memory, pack) if self._pins else pack


def _to_tensors(columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: torch.from_numpy(value) if has_torch_dtype(value) else value
        for name, value in columns.items()
    }


def _concatenate(values: Sequence[Any]) -> Any:
    if not any(isinstance(value, torch.Tensor) for value in values):
        return concatenate_arrays(values)
    tensors = map(torch.as_tensor, values)
    return torch.cat([value.reshape(-1) if not value.ndim else value for value in tensors])


class _TensorArray:
    """A tensor as an array: a tensor in a message would keep a file open for as long as it lives."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


def _pack_message(samples: list[Any]) -> list[Any]:
    """Return the message of a step's samples; the `collate_fn` of the workers."""
    if torch.utils.data.get_worker_info() is None:
        return samples
    message: list[Any] = tree_map_only(torch.Tensor, _to_array, samples)
    return message


def _to_array(tensor: torch.Tensor) -> Any:
    try:
        return _TensorArray(tensor.numpy())
    except (TypeError, RuntimeError):  # a dtype or layout that NumPy lacks
        return tensor


def _to_tensor(array: _TensorArray) -> torch.Tensor:
    return torch.from_numpy(array.array)
