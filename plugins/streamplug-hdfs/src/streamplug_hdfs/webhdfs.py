"""WebHDFS client, with timeouts and failover between name nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import quote

from streamplug_fsspec import limit_session

from streamplug_hdfs.options import CONNECT_TIMEOUT, READ_TIMEOUT


class HdfsError(Exception):
    """An error response of a node.

    Attributes:
        exception: Name of the server's exception, or an empty string.
        status: HTTP status.
        response: The response.
    """

    def __init__(self, exception: str, response: Any) -> None:
        """Take the name of the exception and the response."""
        self.exception, self.response = exception, response
        self.status: int = response.status_code

    @property
    def unspecific(self) -> bool:
        """Whether a name node refused without a reason, as for ranges that begin past the end."""
        return self.exception == "IOException" and self.status == 403


class WebHdfs:
    """Client of the name nodes of one cluster, for all threads of a process."""

    def __init__(
        self, nodes: tuple[str, ...], user: str | None, options: Mapping[str, Any]
    ) -> None:
        self._nodes = nodes
        self._timeout = (
            options.get("connect_timeout") or CONNECT_TIMEOUT,
            options.get("read_timeout") or READ_TIMEOUT,
        )
        user = options.get("user") or user
        token = options.get("token")
        self._who = {"delegation": token} if token else {"user.name": user} if user else {}
        self._session = _new_session(bool(options.get("kerberos")))
        limit_session(self._session)

    @contextmanager
    def answer(
        self, method: str, path: str, operation: str, data: Any = None, **parameters: Any
    ) -> Iterator[Any]:
        """Send a request, and yield the streamed response.

        Args:
            method: ``GET``, …
            path: Path in the cluster, not quoted.
            operation: WebHDFS operation, such as ``OPEN``.
            data: Content to send to the data node that the name node selects.
            **parameters: Parameters of the operation.

        Raises:
            HdfsError: For error responses.
            requests.exceptions.RequestException: If there is no response.
        """
        query = {"op": operation, **self._who, **parameters}
        with self._from_active(method, path, query, data is None) as response:
            if data is None:
                yield response
                return
            data_node = response.headers.get("Location")
            if data_node is None:
                raise HdfsError("no data node to write to", response)
            with self._send(method, data_node, data=data) as stored:
                _check(stored)
                yield stored

    @contextmanager
    def _from_active(
        self, method: str, path: str, query: Mapping[str, Any], follow: bool
    ) -> Iterator[Any]:
        """Yield the response of the first active name node."""
        from requests import exceptions

        for node in self._nodes:
            last = node == self._nodes[-1]
            target = f"{node}/webhdfs/v1{quote(path) or '/'}"
            try:
                response = self._send(method, target, params=query, allow_redirects=follow)
            except (exceptions.ConnectionError, exceptions.Timeout):
                if last:
                    raise
                continue
            with response:
                if not last and _exception(response) == "StandbyException":
                    continue
                _check(response)
                yield response
                return

    def _send(self, method: str, target: str, **request: Any) -> Any:
        request.setdefault("allow_redirects", False)
        headers = {"Accept-Encoding": "identity"}
        if method in ("PUT", "POST"):
            headers["Content-Type"] = "application/octet-stream"
        return self._session.request(
            method, target, headers=headers, timeout=self._timeout, stream=True, **request
        )

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


def _exception(response: Any) -> str:
    """Return the name of the exception in an error response, or an empty string."""
    if response.status_code < 400:
        return ""
    try:
        return str(response.json()["RemoteException"]["exception"])
    except (ValueError, KeyError, TypeError):
        return ""


def _check(response: Any) -> None:
    if response.status_code >= 400:
        raise HdfsError(_exception(response), response)


def _new_session(kerberos: bool) -> Any:
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    if kerberos:
        session.auth = import_module("requests_kerberos").HTTPKerberosAuth()
    else:
        # Otherwise requests would use credentials from ~/.netrc.
        session.auth = lambda request: request
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_connections=16, pool_maxsize=16))
    return session
