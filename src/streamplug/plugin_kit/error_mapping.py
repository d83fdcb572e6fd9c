"""Storage errors, without credentials, for what clients raise; for authors of storages."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.plugin_kit.disk import DISK_FULL_ERRNOS, OUTPUT_REMEDIES, describe_full_disk

RETRYABLE_ERRORS = (
    ConnectionError,
    TimeoutError,
    EOFError,
    InterruptedError,
    BlockingIOError,
    socket.gaierror,
    socket.herror,
    ssl.SSLError,
)
RETRYABLE_ERRNOS = {
    errno.EADDRNOTAVAIL,
    errno.EBUSY,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.ENETUNREACH,
    errno.ENOBUFS,
    errno.ENOTCONN,
    errno.ESTALE,
}
_RETRYABLE_CLASSES = {
    "aiohttp": {"ClientError"},
    "asyncio": {"TimeoutError"},  # until Python 3.11, and not imported for it, which takes long
    "botocore": {"ConnectionError", "HTTPClientError", "IncompleteReadError"},
    "concurrent": {"TimeoutError"},
    "ftplib": {"error_temp"},
    "http": {"BadStatusLine", "IncompleteRead"},
    "httpcore": {"NetworkError", "RemoteProtocolError", "TimeoutException"},
    "httpx": {"NetworkError", "RemoteProtocolError", "TimeoutException"},
    "httpx2": {"NetworkError", "RemoteProtocolError", "TimeoutException"},
    "requests": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
    "urllib3": {"NewConnectionError", "ProtocolError", "TimeoutError"},
}
"""Base classes of errors of connections, by the package of the client."""
_LASTING_CLASSES = {"InvalidURL", "SSLError", "TooManyRedirects"}
_ONE_SLASH_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:/", re.IGNORECASE)  # such as dbfs:/path


def storage_error(error: BaseException, url: str) -> StorageError:
    """Return the storage error for an error of a file, of a connection or of a client.

    Args:
        error: The exception. Its text is not used: it may contain signed URLs or keys.
        url: URL of the object, without credentials.
    """
    if (cause := retryable_cause(error)) is not None:
        return Transient(f"{url}: {type(cause).__name__}: {connection_hint(error)}")
    # Before a missing file, as which some clients report any failure.
    if (cause := next(filter(_is_lasting, causes_of(error)), None)) is not None:
        return StorageError(f"{url}: {_reason(cause)}")
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        return missing_error(url)
    if isinstance(error, PermissionError):
        return denied_error(url)
    number = getattr(error, "errno", None)
    if is_local(url) and isinstance(number, int) and (remedy := OUTPUT_REMEDIES.get(number)):
        reason = f"{url}: {os.strerror(number)}"
        if number in DISK_FULL_ERRNOS:
            reason = describe_full_disk(Path(url.removeprefix("file://")), number)
        return StorageError(f"{reason}; {remedy}")
    return StorageError(f"{url}: {_reason(error)}")


def is_local(url: str) -> bool:
    """Return whether a location is a path on this machine."""
    return url.startswith("file://") or not ("://" in url or _ONE_SLASH_URL.match(url))


def connection_hint(error: BaseException) -> str:
    """Return what is wrong with the connection, and what to check."""
    for cause in causes_of(error):
        if isinstance(cause, socket.gaierror):
            return "the name of its host was not found; check the URL, its region and endpoint"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; check the URL or endpoint, and its port"
        # Before Python 3.11, that of asyncio is another class; clients have subclasses, or one of their own.
        if any(cls.__name__ == "TimeoutError" for cls in type(cause).__mro__):
            return "it timed out; check the network and the endpoint, or try again"
        if getattr(cause, "errno", None) in (errno.EMFILE, errno.ENFILE):
            return "too many files are open; raise the limit (ulimit -n): connections count, too"
    return "the connection failed; it may be tried again"


def causes_of(error: BaseException, *, contexts: bool = False) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on; its context if there is no cause, if asked."""
    # Some clients report any failure as a missing file, with the actual error as its cause.
    cause: BaseException | None = error
    known = set()
    while cause is not None and id(cause) not in known:  # `raise error from error` makes a cycle
        known.add(id(cause))
        yield cause
        cause = cause.__cause__ or (cause.__context__ if contexts else None)


def retryable_cause(error: BaseException) -> BaseException | None:
    """Return the failure of a connection that caused an exception of a client and may not last, or None."""
    causes = list(causes_of(error))
    if any(map(_is_of_certificate, causes)):
        return None
    return next((cause for cause in causes if _is_retryable(cause)), None)


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, RETRYABLE_ERRORS) or getattr(error, "errno", None) in RETRYABLE_ERRNOS:
        return True
    if _is_lasting(error):
        return False
    if any(
        cls.__name__ in _RETRYABLE_CLASSES.get(cls.__module__.partition(".")[0], ())
        for cls in type(error).__mro__
    ):
        return True
    # What urllib and urllib3 wrap.
    reason = getattr(error, "reason", None)
    return isinstance(reason, Exception) and retryable_cause(reason) is not None


def _is_lasting(error: BaseException) -> bool:
    """Return whether a client found, without an error of the connection, that a request cannot succeed."""
    names = (cls.__name__ for cls in type(error).__mro__)
    return _is_of_certificate(error) or not _LASTING_CLASSES.isdisjoint(names)


def _is_of_certificate(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) or "Certificate" in type(error).__name__


def denied_error(url: str, code: str = "") -> AccessDenied:
    """Return the error for a lack of permission; `code` is that of the service, if it has one."""
    if is_local(url):
        return AccessDenied(
            f"no permission for {url}; check the owner and mode of the file and of its directories"
        )
    told = f" ({code})" if code else ""
    return AccessDenied(
        f"no permission for {url}{told}; check the credentials, its access rules, and region and endpoint"
    )


def missing_error(url: str) -> NotFound:
    """Return the error for an object that does not exist."""
    if is_local(url):
        return NotFound(f"{url} does not exist; check the path")
    return NotFound(
        f"{url} does not exist; check the URL, and region and endpoint if there are any"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return str(error)
    name = type(error).__name__
    if name == "TooManyRedirects":
        return "the server redirects in a circle; check the URL, and the server"
    if name == "SSLError" or _is_of_certificate(error):
        return f"no trusted connection to the server: {name}"
    number = getattr(error, "errno", None)
    return f"{name}: {os.strerror(number)}" if isinstance(number, int) else name
