"""WebHDFS client, with timeouts and error mapping."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import quote

from streamplug.errors import AccessDenied, NotFound, StorageError, StreamplugError, Transient
from streamplug.plugin_kit.error_mapping import error_of_status, storage_error
from streamplug_hdfs.options import CONNECT_TIMEOUT, READ_TIMEOUT

_MISSING = {"FileNotFoundException", "ParentNotDirectoryException"}
_DENIED = {"AccessControlException", "InvalidToken", "SecurityException", "AuthorizationException"}
_PASSING = {
    "ConnectException",
    "RetriableException",
    "SafeModeException",
    "SocketTimeoutException",
    "StandbyException",
}


class OutOfRange(Exception):
    """A name node refused a read without a specific reason, as for ranges that begin past the end."""


class WebHdfs:
    """Client of the name nodes of one cluster, for all threads of a process."""

    def __init__(
        self, nodes: tuple[str, ...], user: str | None, options: Mapping[str, Any]
    ) -> None:
        self._nodes, self._options = nodes, options
        self._timeout = (
            options.get("connect_timeout") or CONNECT_TIMEOUT,
            options.get("read_timeout") or READ_TIMEOUT,
        )
        user = options.get("user") or user
        token = options.get("token")
        self._who = {"delegation": token} if token else {"user.name": user} if user else {}
        self._opened: tuple[int, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._nodes)})"

    @contextmanager
    def answer(
        self, url: str, method: str, path: str, operation: str, data: Any = None, **parameters: Any
    ) -> Iterator[Any]:
        """Send a request, and yield the streamed response.

        Args:
            url: URL of the object, for errors.
            method: ``GET``, …
            path: Path in the cluster, not quoted.
            operation: WebHDFS operation, such as ``OPEN``.
            data: Content to send to the data node that the name node selects.
            **parameters: Parameters of the operation.

        Raises:
            StorageError: For error responses, and if there is no response.
            OutOfRange: If a name node refuses to open a file without a specific reason.
        """
        query = {"op": operation, **self._who, **parameters}
        active = self._from_active(url, method, path, query, data is None)
        with translated(url), active as response:
            if data is None:
                yield response
                return
            target = response.headers.get("Location")
            if target is None:
                raise StorageError(f"{url}: the name node named no data node to write to")
            with self._send(method, target, data=data) as stored:
                _check(stored, url)
                yield stored

    @contextmanager
    def _from_active(
        self, url: str, method: str, path: str, query: Mapping[str, Any], follow: bool
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
                name = _exception(response)
                if name == "StandbyException" and not last:
                    continue
                _check(response, url, name)
                yield response
                return

    def _send(self, method: str, target: str, **request: Any) -> Any:
        request.setdefault("allow_redirects", False)
        headers = {"Accept-Encoding": "identity"}
        if method in ("PUT", "POST"):
            headers["Content-Type"] = "application/octet-stream"
        return self._session().request(
            method, target, headers=headers, timeout=self._timeout, stream=True, **request
        )

    def _session(self) -> Any:
        # Connections opened before a fork belong to the parent.
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            self._opened = opened = (os.getpid(), _session(bool(self._options.get("kerberos"))))
        return opened[1]

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Map all exceptions of a block to storage errors about a URL."""
    try:
        yield
    except (StreamplugError, OutOfRange):
        raise
    except Exception as error:  # noqa: BLE001 - clients raise arbitrary exceptions
        raise _ours(error, url) from None


def _ours(error: Exception, url: str) -> StorageError:
    from requests import exceptions

    name = type(error).__name__
    if isinstance(error, exceptions.SSLError):
        return StorageError(f"{url}: no trusted connection to the server: {name}")
    passing = (exceptions.ConnectionError, exceptions.Timeout, exceptions.ChunkedEncodingError)
    if isinstance(error, passing):
        return Transient(f"{url}: {name}; it may be tried again")
    return storage_error(error, url)


def _exception(response: Any) -> str:
    """Return the name of the exception in an error response, or an empty string."""
    if response.status_code < 400:
        return ""
    try:
        return str(response.json()["RemoteException"]["exception"])
    except (ValueError, KeyError, TypeError):
        return ""


def _check(response: Any, url: str, name: str | None = None) -> None:
    if response.status_code < 400:
        return
    name = _exception(response) if name is None else name
    if name in _MISSING:
        raise NotFound(f"{url} does not exist")
    if name in _DENIED:
        raise AccessDenied(f"no permission for {url} ({name}); check the user and its rights")
    if name in _PASSING:
        raise Transient(f"{url}: {name}; it may be tried again")
    if name == "IOException" and response.status_code == 403:
        raise OutOfRange
    if name:
        raise StorageError(f"{url}: the server answered {response.status_code}, {name}")
    raise error_of_status(response.status_code, url)


def _session(kerberos: bool) -> Any:
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
