"""Connections to public addresses only: URLs of a data set must not lead into the network of the reader."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from streamplug_datasets.convert.crawl import Failed

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether an IP address is one of the public internet."""
    address = ip_address(text.partition("%")[0])
    if address in _NAT64:
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    return address.is_global and not address.is_multicast


class _PublicHTTPConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        host = self.host
        try:
            found = socket.getaddrinfo(host.strip("[]"), self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise NameResolutionError(host, self, error) from error
        addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        failure: Exception = Failed(
            "private address",
            f"{host} has the address {', '.join(addresses):.200}, which is not public; pass --allow-private "
            "to fetch from such addresses",
        )
        # Connect to the checked addresses: another look-up of the name may return others.
        for address in filter(is_public, addresses):
            self.host = address
            try:
                return super()._new_conn()
            except (ConnectTimeoutError, NewConnectionError) as error:
                failure = error
            finally:
                self.host = host  # whose certificate is wanted
        raise failure


class _PublicHTTPSConnection(_PublicHTTPConnection, HTTPSConnection):
    pass


class _PublicHTTPConnectionPool(HTTPConnectionPool):
    ConnectionCls = _PublicHTTPConnection


class _PublicHTTPSConnectionPool(HTTPSConnectionPool):
    ConnectionCls = _PublicHTTPSConnection


class PublicAdapter(HTTPAdapter):
    """An adapter of requests that connects to public addresses only, or to proxies, which resolve names.

    Requests to others raise `Failed`, before a connection is made.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {
            "http": _PublicHTTPConnectionPool,
            "https": _PublicHTTPSConnectionPool,
        }
