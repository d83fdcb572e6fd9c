"""Mapping of exceptions of clients of services to storage errors without credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import takewhile

from streamplug.errors import NotFound, StorageError, Transient
from streamplug.plugin_kit import (
    causes_of,
    denied_error,
    missing_error,
    retryable_cause,
    storage_error,
)
from streamplug_fsspec.body import BodyError
from streamplug_fsspec.service_errors import error_of_code, refusal_of

# 416: a size that the server announced before was wrong.
RETRYABLE_STATUSES = {408, 416, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524}
_CODES_OF_MISSING = {"", "AccessDenied", "Forbidden", "forbidden"}
_MISSING_BUCKET_TEXT = re.compile(
    r"\(NoSuchBucket\)|ErrorCode:ContainerNotFound|specified (?:bucket|container) does not exist"
)
_MISSING_BUCKET_CODES = {"NoSuchBucket", "BucketNotFound", "ContainerNotFound"}
_CONTAINER_SCHEMES = {"abfs", "abfss", "az", "adl"}
_NO_TLS = re.compile(
    r"\b(?:WRONG_VERSION_NUMBER|UNKNOWN_PROTOCOL|HTTP_REQUEST|RECORD_LAYER_FAILURE)\b"
)
NO_TLS_TEXT = (
    "the server does not speak TLS; write http:// in place of https:// in the URL or endpoint_url=, or check "
    "the port"
)
_WRONG_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")


def client_error(error: BaseException, url: str) -> StorageError:
    """Return the storage error for an exception of a file system or its client.

    Args:
        error: The exception. Its text is not used: it may contain signed URLs or keys.
        url: URL of the object, without credentials.
    """
    if _names_missing_bucket(error):
        return missing_bucket(url)
    if lacks_tls(error):
        return StorageError(f"{url}: {NO_TLS_TEXT}")
    refusal, status = refusal_of(error), status_of(error)
    converted = error_of_code(refusal, url, status)
    if converted is None and status is not None:
        converted = error_of_status(status, url, code=refusal.code)
    if converted is not None:
        if isinstance(converted, Transient):
            converted.retry_after = _retry_after(error)
        return converted
    if retryable_cause(error) is None and (reason := _reason(error)):
        return StorageError(f"{url}: {reason}")
    return storage_error(error, url)


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


def _names_missing_bucket(error: BaseException) -> bool:
    for cause in _chain(error):
        # The text is searched but not shown: it may contain signed URLs or keys.
        # From __dict__: some clients have a deprecated property of this name.
        code = getattr(cause, "__dict__", {}).get("code")
        is_code = isinstance(code, str) and code in _MISSING_BUCKET_CODES
        if is_code or _MISSING_BUCKET_TEXT.search(str(cause)):
            return True
    return False


def lacks_tls(error: BaseException) -> bool:
    """Return whether a server that was asked over TLS answered without it."""
    return any(_NO_TLS.search(str(cause)) for cause in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return an error and its causes or contexts, up to the error of another operation."""
    # Contexts, too: some clients raise the meaningful error first and another while handling it.
    # A storage error among them is of another operation, whose handler has called this one.
    causes = causes_of(error, contexts=True)
    return takewhile(lambda cause: not isinstance(cause, StorageError), causes)


def error_of_status(
    status: int, url: str, headers: Mapping[str, str] | None = None, *, code: str = ""
) -> StorageError:
    """Return the storage error for an HTTP status.

    Args:
        status: HTTP status.
        url: URL of the object, without credentials.
        headers: Headers of the response, whose names are case-insensitive; retries wait for a Retry-After.
        code: Error code of the service, if it has one.
    """
    if status in (404, 410):
        return missing_error(url)
    if status in (401, 403, 407):
        denied = denied_error(url, code)
        denied.may_be_missing = status == 403 and code in _CODES_OF_MISSING
        return denied
    answer = f"{status} ({code})" if code else f"{status}"
    if status in RETRYABLE_STATUSES:
        error = Transient(f"{url}: the server answered {answer}; it may be tried again")
        error.retry_after = retry_after_in(headers)
        return error
    return StorageError(f"{url}: the server answered {answer}")


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an exception of a common client, or None."""
    for cause in causes_of(error):
        # For what is no HTTP, and for a truncated body, aiohttp sets the status 400, which no server sent.
        if any(_is_of_parser(e) for e in (cause, cause.__cause__)):
            continue
        for candidate in _candidates(cause):
            if isinstance(candidate, int) and 300 <= candidate < 600:
                return int(candidate)
    return None


def _is_of_parser(error: BaseException | None) -> bool:
    return type(error).__module__ == "aiohttp.http_exceptions"


def _candidates(error: BaseException) -> Iterator[object]:
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
    for cause in causes_of(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders")
        else:
            headers = getattr(cause, "headers", None) or getattr(response, "headers", None)
        if seconds := retry_after_in(headers):
            return seconds
    return 0.0


def retry_after_in(headers: object) -> float:
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


def _reason(error: BaseException) -> str:
    """Return what is wrong with a response or a call of a file system; empty for other errors."""
    if isinstance(error, BodyError):
        return f"{error}; check the URL, and the server"
    if isinstance(error, NotImplementedError):
        return "its file system does not support this operation"
    if isinstance(error, TypeError) and (wrong := _WRONG_OPTION.search(str(error))):
        return f"its file system takes no option {wrong[1]!r}; see storage_options"
    return ""
