"""Copies of batches to a device.

Copies to CUDA devices are issued by the thread that iterates, so that none is issued while that thread
captures a CUDA graph. Pinned memory is that of torch's caching allocator, which reuses a block when the
copies from it are complete.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from copy import copy as shallow_copy
from functools import cache
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_map

from streamplug.errors import ConfigError, StreamplugError

_Copy: TypeAlias = "tuple[Any, torch.cuda.Event]"
"""A batch on the device, and the event after its copies."""


def find_device(device: str | torch.device | None) -> torch.device | None:
    """Return the device that an argument names.

    Raises:
        ConfigError: If torch does not know it, or there is no such CUDA device.
    """
    if device is None:
        return None
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device={device!r}: {error}") from error
    if place.type == "cuda" and (place.index or 0) >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"device={str(place)!r}: torch finds {count} CUDA devices; check the driver, "
            "CUDA_VISIBLE_DEVICES and whether torch was built for CUDA, or leave device= out"
        )
    return place


def move_batches(batches: Iterator[Any], device: torch.device | None) -> Iterator[Any]:
    """Yield batches on a device; to a CUDA device each is copied while the one before is in use.

    Tensors in dicts, lists and tuples are moved, and so are other objects with a method `to`. A dict or list
    of a subclass stays one.
    """
    if device is None:
        return batches
    if device.type == "cuda":
        return _copy_ahead(batches, device)
    # Without non_blocking, as memory of workers is reused once a batch is dropped.
    return (_map_movable(lambda value: value.to(device), batch) for batch in batches)


def _can_move(value: Any) -> bool:
    return hasattr(type(value), "to")  # a dict may have its keys as attributes


def _map_movable(function: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch whose objects with a method `to` are replaced by the results of a function."""

    def replace(leaf: Any) -> Any:
        if _can_move(leaf):
            return function(leaf)
        if not isinstance(leaf, (dict, list)):
            return leaf
        changed = shallow_copy(leaf)  # of a subclass, which torch takes for a leaf
        for key, value in leaf.items() if isinstance(leaf, dict) else enumerate(leaf):
            changed[key] = _map_movable(function, value)
        return changed

    return tree_map(replace, batch, is_leaf=_can_move)


def _copy_ahead(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    _keep_garbage_in_forks()
    side = _side_stream(device)
    copy: _Copy | None = None
    error: Exception | None = None
    while error is None:
        if torch.cuda.is_current_stream_capturing():
            raise StreamplugError(
                "a batch was requested while a CUDA graph is captured: request it before, and copy it "
                "into the tensors that the graph reads"
            )
        previous = copy
        try:
            copy = _start_copy(next(batches), device, side)
        except Exception as raised:  # noqa: BLE001 - raised below, when it is the turn of this batch
            error = raised
        if previous is not None:
            yield _finish_copy(*previous, device)
    previous = copy = None  # a handler of the error may need the memory
    try:
        if not isinstance(error, StopIteration):
            raise error
    finally:
        error = None  # it refers to this frame


@cache
def _keep_garbage_in_forks() -> None:
    """Keep forked processes from freeing batches that are garbage in this one: CUDA would end them."""
    enabled = threading.local()

    def before() -> None:
        enabled.value = gc.isenabled()
        gc.disable()

    def after_in_parent() -> None:
        if enabled.value:
            gc.enable()

    def after_in_child() -> None:
        gc.freeze()
        after_in_parent()

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all copies to a device: torch keeps freed memory for the stream it was used on."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # it has no types


def _start_copy(batch: Any, device: torch.device, side: torch.cuda.Stream) -> _Copy:
    def start(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor  # see `_finish_copy`
        is_dense = tensor.device.type == "cpu" and tensor.layout is torch.strided
        if is_dense and not tensor.is_pinned():
            tensor = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        return tensor.to(device, non_blocking=True)

    with torch.cuda.stream(side):
        return _map_movable(start, batch), side.record_event()


def _finish_copy(batch: Any, copied: torch.cuda.Event, device: torch.device) -> Any:
    """Return a batch for use on the current stream, which waits for its copies."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(copied)

    def hand_over(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value.to(device)  # on the current stream: what memory it has is not known here
        value.record_stream(stream)
        return value

    return _map_movable(hand_over, batch)
