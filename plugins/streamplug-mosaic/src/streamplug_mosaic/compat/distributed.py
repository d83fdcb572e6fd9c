"""Rank numbers and collectives of `streaming.base.distributed`."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import torch
from torch import distributed as dist

from streamplug.errors import ConfigError

T = TypeVar("T")


def get_rank() -> int:
    """Return the number of this rank, by the variable RANK."""
    return int(os.environ.get("RANK", "0"))


def get_world_size() -> int:
    """Return the number of ranks, by the variable WORLD_SIZE."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def get_local_rank() -> int:
    """Return the number of this rank on its node, by the variable LOCAL_RANK."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def get_local_world_size() -> int:
    """Return the number of ranks on this node, by the variable LOCAL_WORLD_SIZE."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def barrier() -> None:
    """Wait for all ranks, if there is a process group."""
    if _is_initialized():
        dist.barrier()


def broadcast(tensor: torch.Tensor, src: int) -> None:
    """Send the tensor of a rank to all others, if there is a process group.

    Args:
        tensor: What is sent, or filled.
        src: Number of the rank that sends.
    """
    if _is_initialized():
        dist.broadcast(tensor, src)


def all_gather(tensor_list: list[torch.Tensor], tensor: torch.Tensor) -> None:
    """Collect a tensor of each rank, if there is a process group.

    Args:
        tensor_list: The tensors that are filled, one for each rank.
        tensor: That of this rank.
    """
    if _is_initialized():
        dist.all_gather(tensor_list, tensor)


def all_gather_object(obj: T) -> list[T]:
    """Return an object of each rank.

    Args:
        obj: That of this rank.

    Raises:
        RuntimeError: If there are several ranks and no process group.
    """
    if _is_initialized():
        objects: list[Any] = [None] * get_world_size()
        dist.all_gather_object(objects, obj)
        return objects
    if get_world_size() == 1:
        return [obj]
    raise _NoGroupError(
        f"WORLD_SIZE={get_world_size()}, but there is no process group: call "
        "torch.distributed.init_process_group() first"
    )


def maybe_init_dist() -> bool:
    """Make a process group if there are several ranks and none yet; returns whether it was made."""
    if get_world_size() == 1 or not dist.is_available() or dist.is_initialized():
        return False
    backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, rank=get_rank(), world_size=get_world_size())
    return True


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


class _NoGroupError(ConfigError, RuntimeError):
    """There is no process group, and one is needed."""
