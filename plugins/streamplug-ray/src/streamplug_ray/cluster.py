"""A connection to a Ray cluster: the one that this process has, or one for as long as it is needed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from streamplug.errors import ConfigError

_MISSING = "needs ray, in the version that the cluster has: pip install 'ray[data]'"


def ray_module(who: str) -> Any:
    """Return the module ray.

    Raises:
        ConfigError: If there is none.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"{who} {_MISSING}") from error
    return ray


@contextmanager
def connected(address: str | None, who: str) -> Generator[Any, None, None]:
    """Yield the module ray, connected.

    Args:
        address: As `ray.init` has it; None for the cluster of this process, what RAY_ADDRESS says, or
            one of this machine alone.
        who: What to call it that asks.

    Raises:
        ConfigError: If there is no ray, or no cluster at this address.
    """
    ray = ray_module(who)
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=address, include_dashboard=False if address is None else None)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{who} finds no cluster at {address!r}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
