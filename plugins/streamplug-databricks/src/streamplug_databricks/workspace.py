"""HTTP client of a Databricks workspace, with authentication and timeouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamplug_fsspec import limit_session

from streamplug_databricks.options import (
    AUTHENTICATION,
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    url_of_host,
)


class NoCredentialsError(Exception):
    """Neither the options nor the environment have usable credentials."""


class Workspace:
    """Client of one workspace, for all threads of a process."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Sign in.

        Args:
            options: Checked options of the storage.

        Raises:
            NoCredentialsError: If there are no usable credentials.
        """
        set_options = {name: value for name, value in options.items() if value is not None}
        self._timeout = (
            set_options.get("connect_timeout", CONNECT_TIMEOUT),
            set_options.get("read_timeout", READ_TIMEOUT),
        )
        self._host, self._authenticate = self._sign_in(set_options)
        self._session = _new_session()
        limit_session(self._session)

    @contextmanager
    def answer(
        self, method: str, path: str, *, missing: bool = False, **request: Any
    ) -> Iterator[Any]:
        """Send a request, and yield the streamed response.

        Args:
            method: ``GET``, …
            path: Path in the API, quoted.
            missing: Whether to yield responses with status 404, too.
            **request: As for `requests.request`.

        Raises:
            requests.exceptions.RequestException: For other error responses, and if there is no response.
        """
        from requests.exceptions import HTTPError

        headers = {
            "Accept-Encoding": "identity",
            **self._authenticate(),
            **request.pop("headers", {}),
        }
        with self._session.request(
            method,
            self._host + path,
            headers=headers,
            timeout=self._timeout,
            stream=True,
            **request,
        ) as response:
            expected = response.status_code < 300 or response.status_code == 416
            if not expected and not (missing and response.status_code == 404):
                raise HTTPError(response=response)
            yield response

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _sign_in(self, options: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the host, and a function that returns current authentication headers."""
        set_options = {name: options[name] for name in AUTHENTICATION if name in options}
        if set(set_options) == {"host", "token"}:  # needs no lookup
            return url_of_host(set_options["host"]), lambda: {
                "Authorization": f"Bearer {set_options['token']}"
            }
        from databricks.sdk.config import Config

        try:
            config = Config(
                **set_options,
                http_timeout_seconds=self._timeout[1],
                retry_timeout_seconds=int(self._timeout[1]) + 1,
            )
            host = config.host or ""
            config.authenticate()
        except ValueError as error:
            raise NoCredentialsError from error
        return url_of_host(host), config.authenticate


def _new_session() -> Any:
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    # Otherwise requests would use credentials from ~/.netrc.
    session.auth = lambda request: request
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=32))
    return session
