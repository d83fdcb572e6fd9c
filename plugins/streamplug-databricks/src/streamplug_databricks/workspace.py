"""HTTP client of a Databricks workspace, with authentication, timeouts and error mapping."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamplug.errors import AccessDenied, StorageError, StreamplugError, Transient
from streamplug.plugin_kit.error_mapping import error_of_status, storage_error
from streamplug_databricks.options import AUTHENTICATION, CONNECT_TIMEOUT, READ_TIMEOUT


class Workspace:
    """Client of one workspace, for all threads of a process."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = {name: value for name, value in options.items() if value is not None}
        self._timeout = (
            self._options.get("connect_timeout", CONNECT_TIMEOUT),
            self._options.get("read_timeout", READ_TIMEOUT),
        )
        self._opened: tuple[int, Any, str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @contextmanager
    def answer(
        self, url: str, method: str, path: str, *, missing: bool = False, **request: Any
    ) -> Iterator[Any]:
        """Send a request, and yield the streamed response.

        Args:
            url: URL of the object, for errors.
            method: ``GET``, …
            path: Path in the API, quoted.
            missing: Whether to yield responses with status 404, too.
            **request: As for `requests.request`.

        Raises:
            StorageError: For other error responses, and if there is no response.
        """
        with translated(url):
            session, host, sign_in = self._open(url)
            headers = {"Accept-Encoding": "identity", **sign_in(), **request.pop("headers", {})}
            with session.request(
                method, host + path, headers=headers, timeout=self._timeout, stream=True, **request
            ) as response:
                expected = response.status_code < 300 or response.status_code == 416
                if not expected and not (missing and response.status_code == 404):
                    raise error_of_status(response.status_code, url)
                yield response

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def _open(self, url: str) -> tuple[Any, str, Any]:
        # Connections opened before a fork belong to the parent.
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            self._opened = opened = (os.getpid(), _session(), *self._sign_in(url))
        return opened[1:]

    def _sign_in(self, url: str) -> tuple[str, Any]:
        """Return the host, and a function that returns current authentication headers."""
        given = {name: self._options[name] for name in AUTHENTICATION if name in self._options}
        if set(given) == {"host", "token"}:  # needs no lookup
            return _host(given["host"]), lambda: {"Authorization": f"Bearer {given['token']}"}
        from databricks.sdk.config import Config

        try:
            config = Config(
                **given,
                http_timeout_seconds=self._timeout[1],
                retry_timeout_seconds=int(self._timeout[1]) + 1,
            )
            host = config.host or ""
            config.authenticate()
        except Exception as error:
            if not isinstance(error, ValueError):
                raise
            raise AccessDenied(
                f"no usable credentials for {url}; set DATABRICKS_HOST and DATABRICKS_TOKEN, name a "
                "profile of ~/.databrickscfg, or pass storage_options with 'host' and 'token'"
            ) from None
        return _host(host), config.authenticate


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Map all exceptions of a block to storage errors about a URL."""
    try:
        yield
    except StreamplugError:
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


def _host(host: str) -> str:
    host = host.rstrip("/")
    return host if host.startswith(("http://", "https://")) else f"https://{host}"


def _session() -> Any:
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    # Otherwise requests would use credentials from ~/.netrc.
    session.auth = lambda request: request
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=32))
    return session
