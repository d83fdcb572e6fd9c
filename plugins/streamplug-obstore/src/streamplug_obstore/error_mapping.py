"""Mapping of obstore's errors to storage errors."""

from __future__ import annotations

import re
from urllib.parse import unquote

from streamplug_fsspec import (
    NO_TLS_TEXT,
    RETRYABLE_CODES,
    RETRYABLE_STATUSES,
    Refusal,
    error_of_code,
    error_of_status,
    missing_bucket,
)

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient

_NO_BUCKET = re.compile(
    r"<Code>(?:NoSuchBucket|ContainerNotFound)</Code>|specified (?:bucket|container) does not exist"
)
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
# Texts of credential lookups, which are not about the object.
_CREDENTIALS = re.compile(
    r"token request|://169\.254\.|://metadata\.google|/latest/(api|meta-data)|[Cc]redential|://sts\.",
    re.ASCII,
)
# Hosts that only issue credentials, whatever the path.
_CREDENTIAL_HOST = re.compile(
    r"https?://(?:169\.254\.|metadata\.google|sts\.(?:[\w-]+\.)?(?:amazonaws|googleapis)\.com)",
    re.ASCII,
)
_URL = re.compile(r"https?://\S+")
_LISTING = re.compile(r"[?&](?:list-type|comp|prefix)=")
_UNREADABLE = re.compile(
    r"pem file|(?:decode|open|read) service account|Invalid Access Key|read token file"
)
_CERTIFICATE = re.compile(r"invalid peer certificate|UnknownIssuer|CertificateUnknown")
_NO_TLS = re.compile(r"InvalidMessage\(\s*InvalidContentType")  # of a record of TLS
_BROKEN = re.compile(r"HTTP error|error sending request|error decoding|timed out|body")
_OTHER_RANGE = re.compile(r"Requested \d+\.\.\d+, got \d+\.\.\d+")
_DENIED_CODES = re.compile(
    r"<Code>(ExpiredToken|InvalidToken|InvalidAccessKeyId|TokenRefreshRequired)</Code>"
)
_ERROR_CODE = re.compile(r"<Code>([^<]*)</Code>|\"code\": *\"([^\"]*)\"")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_REGION = re.compile(r"<Region>([^<]*)</Region>")
REDIRECT = "PermanentRedirect"
_BARE_REDIRECT = "Received redirect without LOCATION"  # as S3 answers in another region


def storage_error(error: BaseException, url: str, ways: str) -> StorageError:
    """Return a storage error without obstore's text, which contains URLs and response bodies.

    Args:
        error: The error of obstore.
        url: URL of the object.
        ways: How credentials can be passed.
    """
    # The first part is readable; the rest repeats it as debug output.
    text = str(error).partition("\n\nDebug source")[0]
    # The names of objects may contain anything that is searched for below.
    path = "/" + url.partition("://")[2].partition("/")[2]
    text = _URL.sub(lambda match: "" if _is_of_object(match[0], path) else match[0], text)
    if _NO_BUCKET.search(text):
        return missing_bucket(url)
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{url} does not exist")
    # Other statuses of that service are those of a machine that has no credentials.
    if _CREDENTIALS.search(text.partition("<")[0]) and status_of(error) in RETRYABLE_STATUSES:
        return Transient(
            f"{url}: the service that gives this machine its credentials failed; it may be tried again"
        )
    refusal = refusal_of(error)
    if (told := error_of_code(refusal, url, status_of(error))) is not None:
        return told
    if denied := _why_denied(error, text, ways):
        return AccessDenied(denied.format(url))
    if status := status_of(error):
        return error_of_status(status, url, code=refusal.code)
    return _connection_error(error, url, text)


def _connection_error(error: BaseException, url: str, text: str) -> StorageError:
    """Return the storage error for an error without a status; `text` is the readable part of it."""
    if _OTHER_RANGE.search(text):
        return Transient(f"{url}: the server sent another range than asked; it may be tried again")
    if _NO_TLS.search(str(error)):
        return StorageError(f"{url}: {NO_TLS_TEXT}")
    if _BROKEN.search(text) and not _CERTIFICATE.search(str(error)):
        return Transient(f"{url}: the connection failed; it may be tried again")
    return StorageError(f"{url}: {_reason(error, text)}")


def _is_of_object(url: str, path: str) -> bool:
    """Return whether a request was for an object or a listing, and not for credentials."""
    if _CREDENTIAL_HOST.match(url):
        return False
    place = unquote(url.partition("?")[0])
    # Objects have a path: "/" is the location of a whole bucket, and ends URLs of credentials, too.
    return (path != "/" and place.endswith(path)) or _LISTING.search(url) is not None


def _why_denied(error: BaseException, text: str, ways: str) -> str:
    name = type(error).__name__
    ways = ways.replace("{", "{{").replace("}", "}}")
    if name == "UnauthenticatedError" or _DENIED_CODES.search(text):
        return "no valid credentials for {}; " + ways
    if _UNREADABLE.search(text):
        return "the credentials for {} cannot be read; " + ways
    if _CREDENTIALS.search(text.partition("<")[0]):
        return "no credentials for {}; " + ways
    return ""


def _reason(error: BaseException, text: str) -> str:
    name = type(error).__name__
    if name == "UnknownConfigurationKeyError":
        return "obstore does not know a setting in 'config'"
    if "Account must be specified" in text:
        return "name the storage account: storage_options={'account_name': …}"
    if _CERTIFICATE.search(str(error)):
        return "the server's certificate is not trusted"
    if name == "InvalidPathError" or isinstance(error, ValueError):
        return "obstore takes no names with empty, '.' or '..' parts"
    return name


def status_of(error: BaseException) -> int:
    """Return the HTTP status of the response, or 0."""
    match = _STATUS.search(str(error))
    return int(match[1]) if match else 0


def is_passing(error: BaseException) -> bool:
    """Return whether the server asks to try the request again, such as while another one is in progress."""
    return refusal_of(error).code in RETRYABLE_CODES


def refusal_of(error: BaseException) -> Refusal:
    """Return what the service said of a request."""
    text = str(error).partition("\n\nDebug source")[0]
    if _BARE_REDIRECT in text:
        return Refusal(REDIRECT)
    code, message, region = (p.search(text) for p in (_ERROR_CODE, _MESSAGE, _REGION))
    return Refusal.of(code and (code[1] or code[2]), message and message[1], region and region[1])


def begins_beyond_end(error: BaseException) -> bool:
    """Return whether a requested range begins at or after the end of the object."""
    return status_of(error) == 416 or "Wanted range starting at" in str(error)


def ignores_ranges(error: BaseException) -> bool:
    """Return whether the server sent a whole object for a range request."""
    return "non-partial response" in str(error) or "Range request not supported" in str(error)
