"""Connections to a Ray cluster."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

from streamplug.errors import ConfigError

_MISSING = "needs ray, in the version that the cluster has: pip install 'ray[data]'"


def ray_module(who: str) -> Any:
    """Return the module ray.

    Raises:
        ConfigError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"{who} {_MISSING}") from error
    return ray


@contextmanager
def connected(address: str | None, who: str) -> Generator[Any, None, None]:
    """Yield the connected module ray; disconnect at the end unless it was connected before.

    Args:
        address: Address as for `ray.init`; None is the cluster of this process, that of RAY_ADDRESS, or
            a new one on this machine.
        who: Name of the caller, for errors.

    Raises:
        ConfigError: If ray is missing, the address has no cluster, or ray is connected to another one.
    """
    ray = ray_module(who)
    if ray.is_initialized():
        if not _is_same_cluster(ray, address):
            raise ConfigError(
                f"{who} is to use {address!r}, but this process is connected to a cluster already: leave out "
                "the address to use that, or call ray.shutdown() first"
            )
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


def _is_same_cluster(ray: Any, address: str | None) -> bool:
    """Return whether an address is that of the cluster that this process is connected to."""
    if address in (None, "auto"):
        return True
    connected_host, _, connected_port = ray.get_runtime_context().gcs_address.rpartition(":")
    host, _, port = str(address).rpartition(":")
    if port != connected_port:
        return False
    return not _ip_addresses(ray, host).isdisjoint(_ip_addresses(ray, connected_host))


def _ip_addresses(ray: Any, host: str) -> set[str]:
    """Return the addresses of a host; ray calls this machine by another one than the loopback address."""
    host = host.strip("[]")
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}
    if any(ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        addresses.add(ray.util.get_node_ip_address())
    return addresses
