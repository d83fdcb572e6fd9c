"""Collation, and sending by shared memory, in a worker of torch's own `DataLoader`.

torch makes a tensor of each array, and sends a file descriptor for each tensor of a batch, which takes 0.1 ms
of processors or more. The hooks set here collate arrays by one copy, pickle small tensors, and pass large
ones, bytes and strings through memory that is reused. They are set in worker processes only, where torch has
its own: in `default_collate_fn_map`, and as reducers of `ForkingPickler`.

In ``tests/benchmarks/bench_read.py`` torch's loader with two workers reads a third as many samples of tokens
or of small values per second of processor time without them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import reduce_tensor
from torch.utils._pytree import register_pytree_node
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate as torch_collate

from streamplug.adapters.shared_memory import (
    MIN_SHARED_BYTES,
    PackedArrays,
    SharedArrays,
    StringLayout,
    StringList,
    are_large,
    map_arrays,
    pack_strings,
)
from streamplug.dataset import MapSource
from streamplug.plugin_kit import end_with_parent
from streamplug.types import Sample

_SLOTS = 64
"""Large tensors per worker that are in use or ahead of use; torch shares files for further ones."""

_reduce_by_torch: Callable[[torch.Tensor], tuple[Any, ...]] = reduce_tensor


def share_memory(cells: torch.Tensor) -> torch.Tensor:
    """Move a tensor to shared memory on this thread alone, as forked processes lack torch's other threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cells.share_memory_()  # type: ignore[no-untyped-call]  # it has no types
    finally:
        torch.set_num_threads(threads)
    return cells


def prepare_worker() -> None:
    """If this process is a loader worker, let it end with its parent, and set the hooks.

    torch notices the death of the parent after seconds, and never in workers that ``forkserver`` has started.
    """
    if get_worker_info() is not None:
        end_with_parent()
        if _has_paths():  # by which others open its memory
            _set_hooks()


@cache
def _has_paths() -> bool:
    return SharedArrays.possible() and Path("/proc/self/fd").is_dir()


@cache
def _set_hooks() -> None:
    own = {np.ndarray: _collate_arrays, bytes: _collate_strings, str: _collate_strings}
    by_torch = (torch_collate.collate_numpy_array_fn, torch_collate.collate_str_fn)
    collations = torch_collate.default_collate_fn_map
    collations.update({kind: f for kind, f in own.items() if collations.get(kind) in by_torch})
    # What maps a function over a batch takes it for a list.
    register_pytree_node(
        StringList, lambda values: (list(values), None), lambda values, _: list(values)
    )
    ForkingPickler.register(torch.Tensor, _reduce_tensor)
    ForkingPickler.register(StringList, _reduce_strings)


def _collate_arrays(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Collate arrays as torch does, by one call of NumPy rather than several of torch for each."""
    dtype = batch[0].dtype
    is_plain = set(map(type, batch)) == {np.ndarray} and dtype.isnative
    if is_plain and {array.dtype for array in batch} == {dtype}:
        try:
            return torch.from_numpy(np.array(batch))
        except (TypeError, ValueError):  # torch's own error, of what it cannot collate, is below
            pass
    return torch_collate.collate_numpy_array_fn(batch, collate_fn_map=collate_fn_map)


def _collate_strings(batch: Any, *, collate_fn_map: Any = None) -> Any:  # noqa: ARG001 - torch passes it
    is_uniform = type(batch) is list and len(set(map(type, batch))) == 1  # nullable columns are not
    return StringList(batch) if is_uniform and are_large(batch) else batch


@cache
def _memory() -> SharedArrays:
    # Another worker may get the process id of one whose batches are still in use.
    return SharedArrays(_SLOTS, key=(os.getpid(), time.monotonic_ns()))


def _share(array: NDArray[Any]) -> tuple[PackedArrays, str] | None:
    memory = _memory()
    packed = memory.pack({0: array})
    return None if packed is None else (packed, memory.path)


def _reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    try:
        array = tensor.numpy()
    except (TypeError, RuntimeError):  # a device or dtype that NumPy lacks, or it needs gradients
        return _reduce_by_torch(tensor)
    if not tensor.is_contiguous() or array.nbytes != tensor.untyped_storage().nbytes():
        return _reduce_by_torch(tensor)  # others may have the same memory
    if array.nbytes < MIN_SHARED_BYTES:
        return torch.from_numpy, (array,)
    shared = _share(array)
    return _reduce_by_torch(tensor) if shared is None else (_map_tensor, shared)


def _map_tensor(packed: PackedArrays, path: str) -> torch.Tensor:
    return torch.from_numpy(map_arrays(packed, path, _SLOTS)[0])


def _reduce_strings(strings: StringList) -> tuple[Any, ...]:
    joined = pack_strings(strings)
    shared = None if joined is None else _share(joined.data)
    if joined is None or shared is None:
        return list, (list(strings),)
    return _map_strings, (joined.cuts, *shared)


def _map_strings(cuts: StringLayout, packed: PackedArrays, path: str) -> list[Any]:
    return cuts.values(map_arrays(packed, path, _SLOTS)[0])


class TorchSource(MapSource):
    """Stored samples of a data set by sample id, read by torch's loaders."""

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return many samples, which are read together; torch's loaders call this for each batch."""
        prepare_worker()
        return super().__getitems__(indices)
