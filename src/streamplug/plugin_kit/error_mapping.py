"""Mapping of client exceptions to storage errors without credentials."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from concurrent import futures
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.plugin_kit.body import BodyError
from streamplug.plugin_kit.disk import DISK_FULL_ERRNOS, OUTPUT_REMEDIES, describe_full_disk

RETRYABLE_ERRORS = (
    ConnectionError,
    TimeoutError,
    asyncio.TimeoutError,
    futures.TimeoutError,
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
# 416: a size that the server announced before was wrong.
RETRYABLE_STATUSES = {408, 416, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524}
_RETRYABLE_CLASSES = {
    "aiohttp": {"ClientError"},
    "botocore": {"ConnectionError", "HTTPClientError", "IncompleteReadError"},
    "http": {"BadStatusLine", "IncompleteRead"},
    "httpcore": {"NetworkError", "RemoteProtocolError", "TimeoutException"},
    "httpx": {"NetworkError", "RemoteProtocolError", "TimeoutException"},
    "httpx2": {"NetworkError", "RemoteProtocolError", "TimeoutException"},
    "requests": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
    "urllib3": {"NewConnectionError", "ProtocolError", "TimeoutError"},
}
"""Base classes of errors of connections, by the package of the client."""
_LASTING_CLASSES = {"InvalidURL", "SSLError", "TooManyRedirects"}
_MISSING_BUCKET_TEXT = re.compile(
    r"\(NoSuchBucket\)|ErrorCode:ContainerNotFound|specified (?:bucket|container) does not exist"
)
_MISSING_BUCKET_CODES = {"NoSuchBucket", "BucketNotFound", "ContainerNotFound"}
_CONTAINER_SCHEMES = {"abfs", "abfss", "az", "adl"}
_ONE_SLASH_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:/", re.IGNORECASE)  # such as dbfs:/path
_WRONG_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")


def storage_error(error: BaseException, url: str) -> StorageError:
    """Return the storage error for an exception of a file system or its client.

    Args:
        error: The exception. Its text is not used: it may contain signed URLs or keys.
        url: URL of the object, without credentials.
    """
    if _names_missing_bucket(error):
        return missing_bucket(url)
    status = status_of(error)
    if status is not None:
        converted = error_of_status(status, url)
        if isinstance(converted, Transient):
            converted.retry_after = _retry_after(error)
        return converted
    if (cause := retryable_cause(error)) is not None:
        return Transient(f"{url}: {type(cause).__name__}: {connection_hint(error)}")
    # Before a missing file, as which some clients report any failure.
    if (cause := next(filter(_is_lasting, _chain(error)), None)) is not None:
        return StorageError(f"{url}: {_reason(cause)}")
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        return _missing(url)
    if isinstance(error, PermissionError):
        return _denied(url)
    number = getattr(error, "errno", None)
    if is_local(url) and isinstance(number, int) and (remedy := OUTPUT_REMEDIES.get(number)):
        reason = f"{url}: {os.strerror(number)}"
        if number in DISK_FULL_ERRNOS:
            reason = describe_full_disk(Path(url.removeprefix("file://")), number)
        return StorageError(f"{reason}; {remedy}")
    return StorageError(f"{url}: {_reason(error)}")


def missing_bucket(url: str) -> NotFound:
    """Return the error for a bucket or container that does not exist."""
    scheme, _, rest = url.partition("://")
    name = rest.partition("/")[0].partition("@")[0]
    word = "container" if scheme in _CONTAINER_SCHEMES else "bucket"
    error = NotFound(
        f"{url}: there is no {word} {name!r}; check its name, and region and endpoint if there are any, or "
        "create it"
    )
    error.bucket = name
    return error


def is_local(url: str) -> bool:
    """Return whether a location is a path on this machine."""
    return url.startswith("file://") or not ("://" in url or _ONE_SLASH_URL.match(url))


def _names_missing_bucket(error: BaseException) -> bool:
    # Contexts, too: some clients raise the meaningful error first and another while handling it.
    # A storage error among them is of another operation, whose handler has called this one.
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, StorageError):
        # The text is searched but not shown: it may contain signed URLs or keys.
        # From __dict__: some clients have a deprecated property of this name.
        code = getattr(cause, "__dict__", {}).get("code")
        is_code = isinstance(code, str) and code in _MISSING_BUCKET_CODES
        if is_code or _MISSING_BUCKET_TEXT.search(str(cause)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def error_of_status(
    status: int, url: str, headers: Mapping[str, str] | None = None
) -> StorageError:
    """Return the storage error for an HTTP status.

    Args:
        status: HTTP status.
        url: URL of the object, without credentials.
        headers: Headers of the response, whose names are case-insensitive; retries wait for a Retry-After.
    """
    if status in (404, 410):
        return _missing(url)
    if status in (401, 403, 407):
        return _denied(url)
    if status in RETRYABLE_STATUSES:
        error = Transient(f"{url}: the server answered {status}; it may be tried again")
        error.retry_after = _retry_after_in(headers)
        return error
    return StorageError(f"{url}: the server answered {status}")


def connection_hint(error: BaseException) -> str:
    """Return what is wrong with the connection, and what to check."""
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return "the name of its host was not found; check the URL, its region and endpoint"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; check the URL or endpoint, and its port"
        if isinstance(cause, (TimeoutError, asyncio.TimeoutError)):
            return "it timed out; check the network and the endpoint, or try again"
        if getattr(cause, "errno", None) in (errno.EMFILE, errno.ENFILE):
            return "too many files are open; raise the limit (ulimit -n): connections count, too"
    return "the connection failed; it may be tried again"


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an exception of a common client, or None."""
    for cause in _chain(error):
        for candidate in _candidates(cause):
            if isinstance(candidate, int) and 300 <= candidate < 600:
                return int(candidate)
    return None


def _candidates(error: BaseException) -> Iterator[object]:
    # For a truncated body, aiohttp sets the status 400, which the server did not send.
    if type(error).__module__ == "aiohttp.http_exceptions":
        return
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        yield response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return
    status = getattr(error, "status", None)  # aiohttp, oci
    yield status
    yield getattr(error, "status_code", None)  # azure
    yield getattr(response, "status_code", None)  # requests
    if status is None:  # errors of aiohttp have a deprecated property of this name
        yield getattr(error, "code", None)  # google


def _retry_after(error: BaseException) -> float:
    """Return the seconds of a Retry-After header, else 0."""
    for cause in _chain(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders")
        else:
            headers = getattr(cause, "headers", None) or getattr(response, "headers", None)
        if seconds := _retry_after_in(headers):
            return seconds
    return 0.0


def _retry_after_in(headers: object) -> float:
    """Return the seconds of a Retry-After header, which has a number or a date: RFC 9110, 10.2.3."""
    if not isinstance(headers, Mapping) or not isinstance(value := headers.get("retry-after"), str):
        return 0.0
    if re.fullmatch("[0-9]{1,6}", value):
        return float(value)
    # By the server's clock if it tells the time.
    now = _parse_date(headers.get("date")) or datetime.now(timezone.utc)
    until = _parse_date(value) or now
    return max((until - now).total_seconds(), 0.0)


def _parse_date(text: object) -> datetime | None:
    """Return the time of an HTTP date, or None."""
    try:
        date = parsedate_to_datetime(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
    return date and date.replace(tzinfo=date.tzinfo or timezone.utc)


def _chain(error: BaseException) -> Iterator[BaseException]:
    # Some clients report any failure as a missing file, with the actual error as its cause.
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def retryable_cause(error: BaseException) -> BaseException | None:
    """Return the failure of a connection that caused an exception of a client and may not last, or None."""
    causes = list(_chain(error))
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


def _denied(url: str) -> AccessDenied:
    if is_local(url):
        return AccessDenied(
            f"no permission for {url}; check the owner and mode of the file and of its directories"
        )
    return AccessDenied(
        f"no permission for {url}; check the credentials, its access rules, and region and endpoint"
    )


def _missing(url: str) -> NotFound:
    if is_local(url):
        return NotFound(f"{url} does not exist; check the path")
    return NotFound(
        f"{url} does not exist; check the URL, and region and endpoint if there are any"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return str(error)
    if isinstance(error, BodyError):
        return f"{error}; check the URL, and the server"
    if isinstance(error, NotImplementedError):
        return "its file system does not support this operation"
    if isinstance(error, TypeError) and (wrong := _WRONG_OPTION.search(str(error))):
        return f"its file system takes no option {wrong[1]!r}; see storage_options"
    name = type(error).__name__
    if name == "TooManyRedirects":
        return "the server redirects in a circle; check the URL, and the server"
    if name == "SSLError" or _is_of_certificate(error):
        return f"no trusted connection to the server: {name}"
    number = getattr(error, "errno", None)
    return f"{name}: {os.strerror(number)}" if isinstance(number, int) else name
