"""What a client's exception means: one of our storage errors, whose text holds no credentials."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient

_PASSING = (
    ConnectionError,
    TimeoutError,
    asyncio.TimeoutError,
    InterruptedError,
    BlockingIOError,
    socket.gaierror,
)
_PASSING_ERRNO = {
    getattr(errno, name)
    for name in ("EBUSY", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ESTALE")
    if hasattr(errno, name)
}
_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524}
_WRONG_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")


def storage_error(error: BaseException, url: str) -> StorageError:
    """Return our error for one that a file system or its client raised.

    Args:
        error: What was raised. Its own text is not used: it may hold signed URLs or keys.
        url: The object, without credentials.
    """
    status = status_of(error)
    if status is not None:
        ours = error_of_status(status, url)
        if isinstance(ours, Transient):
            ours.retry_after = _retry_after(error)
        return ours
    for cause in _chain(error):
        if _passes(cause):
            return Transient(f"{url}: {type(cause).__name__}: {connection_hint(error)}")
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        return _missing(url)
    if isinstance(error, PermissionError):
        return _denied(url)
    return StorageError(f"{url}: {_reason(error)}")


def error_of_status(status: int, url: str) -> StorageError:
    """Return our error for an HTTP status."""
    if status in (404, 410):
        return _missing(url)
    if status in (401, 403, 407):
        return _denied(url)
    if status in _PASSING_STATUS:
        return Transient(f"{url}: the server answered {status}; it may be tried again")
    return StorageError(f"{url}: the server answered {status}")


def connection_hint(error: BaseException) -> str:
    """Say what is wrong with the connection, and what to look at."""
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return "the name of its host was not found; check the URL, its region and endpoint"
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens there; check the URL or endpoint, and its port"
        if isinstance(cause, (TimeoutError, asyncio.TimeoutError)):
            return "nothing came in time; check the network and the endpoint, or try again"
        if getattr(cause, "errno", None) in (errno.EMFILE, errno.ENFILE):
            return "too many files are open; raise the limit (ulimit -n): connections count, too"
    return "the connection failed; it may be tried again"


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status behind an exception of any of the usual clients, if it has one."""
    for cause in _chain(error):
        for candidate in _candidates(cause):
            if isinstance(candidate, int) and 300 <= candidate < 600:
                return int(candidate)
    return None


def _candidates(error: BaseException) -> Iterator[object]:
    # Of a body that breaks off, aiohttp says the status that a server would give its like: 400.
    if type(error).__module__ == "aiohttp.http_exceptions":
        return
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        yield response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return
    yield getattr(error, "status", None)  # aiohttp, oci
    yield getattr(error, "status_code", None)  # azure
    yield getattr(response, "status_code", None)  # requests
    yield getattr(error, "code", None)  # google


def _retry_after(error: BaseException) -> float:
    """Return the seconds that a server asked to wait, if it gave a number."""
    for cause in _chain(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders")
        else:
            headers = getattr(cause, "headers", None) or getattr(response, "headers", None)
        asked = headers.get("retry-after") if isinstance(headers, Mapping) else None
        if isinstance(asked, str) and re.fullmatch("[0-9]{1,6}", asked):
            return float(asked)
    return 0.0


def _chain(error: BaseException) -> Iterator[BaseException]:
    # Some clients report whatever went wrong as a missing file, and the truth as its cause.
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _passes(error: BaseException) -> bool:
    if isinstance(error, ssl.SSLCertVerificationError) or "Certificate" in type(error).__name__:
        return False
    if isinstance(error, _PASSING) or getattr(error, "errno", None) in _PASSING_ERRNO:
        return True
    return type(error).__module__.startswith("aiohttp.client_exceptions") and not isinstance(
        error, ValueError
    )


def _denied(url: str) -> AccessDenied:
    return AccessDenied(
        f"no permission for {url}; check the credentials, its access rules, and region and endpoint"
    )


def _missing(url: str) -> NotFound:
    return NotFound(
        f"{url} does not exist; check the URL, and region and endpoint if there are any"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return str(error)
    if isinstance(error, NotImplementedError):
        return "its file system does not offer this operation"
    if isinstance(error, TypeError) and (wrong := _WRONG_OPTION.search(str(error))):
        return f"its file system takes no option {wrong[1]!r}; see storage_options"
    name = type(error).__name__
    number = getattr(error, "errno", None)
    return f"{name}: {os.strerror(number)}" if isinstance(number, int) else name
