from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
from concurrent import futures
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from types import SimpleNamespace
from urllib.error import URLError

import pytest
import urllib3
from aiohttp import client_exceptions as aio
from aiohttp.http_exceptions import ContentLengthError
from streamplug_fsspec import error_of_status, status_of
from streamplug_fsspec.error_mapping import client_error

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient

URL = "x://host/k"
REQUEST = SimpleNamespace(real_url="http://host/?secret", headers={}, method="GET", url="")


class ServiceError(Exception):
    def __init__(self, **attributes):
        super().__init__("secret")
        self.__dict__.update(attributes)


def caused(error, cause):
    error.__cause__ = cause
    return error


def response_error(status, **headers):
    return aio.ClientResponseError(REQUEST, (), status=status, headers=headers)  # type: ignore[arg-type]


def broken_off():
    return caused(aio.ClientPayloadError("secret"), ContentLengthError("secret"))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (response_error(503), 503),
        (ServiceError(status=404), 404),
        (ServiceError(status_code=403), 403),
        (ServiceError(code=429), 429),
        (ServiceError(response={"ResponseMetadata": {"HTTPStatusCode": 500}}), 500),
        (ServiceError(response=SimpleNamespace(status_code=502)), 502),
        (caused(OSError(), ServiceError(status=503)), 503),
        (ServiceError(response={}), None),
        (ServiceError(response=None), None),
        (ServiceError(status="broken", code=1), None),
        (broken_off(), None),
        (OSError(), None),
    ],
)
def test_finds_the_status(error, status):
    assert status_of(error) == status


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        *((status, NotFound) for status in (404, 410)),
        *((status, AccessDenied) for status in (401, 403, 407)),
        *((status, Transient) for status in (408, 429, 500, 502, 503, 504)),
        *((status, StorageError) for status in (301, 400, 405, 412, 501, 505)),
    ],
)
def test_a_status_decides(status, wanted):
    error = error_of_status(status, URL)
    assert type(error) is wanted
    assert URL in str(error)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (FileNotFoundError("secret"), NotFound),
        (NotADirectoryError("secret"), NotFound),
        (IsADirectoryError("secret"), NotFound),
        (PermissionError("secret"), AccessDenied),
        (ConnectionResetError("secret"), Transient),
        (TimeoutError("secret"), Transient),
        (asyncio.TimeoutError("secret"), Transient),
        (socket.gaierror(socket.EAI_AGAIN, "secret"), Transient),
        (OSError(errno.EHOSTUNREACH, "secret"), Transient),
        (OSError(errno.ESTALE, "secret"), Transient),
        (OSError(errno.ENOSPC, "secret"), StorageError),
        (aio.ClientPayloadError("secret"), Transient),
        (broken_off(), Transient),
        (aio.ServerDisconnectedError("secret"), Transient),
        (aio.InvalidURL("secret"), StorageError),
        (ssl.SSLCertVerificationError("secret"), StorageError),
        (ssl.SSLEOFError("secret"), Transient),
        (caused(aio.ClientError("secret"), ssl.SSLCertVerificationError("secret")), StorageError),
        (http.client.IncompleteRead(b"secret"), Transient),
        (http.client.RemoteDisconnected("secret"), Transient),
        (futures.TimeoutError("secret"), Transient),
        (OSError(errno.EADDRNOTAVAIL, "secret"), Transient),
        (URLError(socket.gaierror(socket.EAI_AGAIN, "secret")), Transient),
        (URLError(ssl.SSLCertVerificationError("secret")), StorageError),
        (URLError("secret"), StorageError),
        (urllib3.exceptions.ProtocolError("secret"), Transient),
        (urllib3.exceptions.ReadTimeoutError(None, "secret", "secret"), Transient),
        (
            urllib3.exceptions.MaxRetryError(
                None, "secret", urllib3.exceptions.NewConnectionError(None, "secret")
            ),
            Transient,
        ),
        (
            urllib3.exceptions.MaxRetryError(None, "secret", urllib3.exceptions.SSLError("secret")),
            StorageError,
        ),
        (caused(FileNotFoundError("secret"), aio.ClientPayloadError("secret")), Transient),
        (caused(FileNotFoundError("secret"), response_error(403)), AccessDenied),
        (caused(FileNotFoundError("secret"), KeyError("secret")), NotFound),
        (caused(FileNotFoundError("secret"), aio.InvalidURL("secret")), StorageError),
        (
            caused(FileNotFoundError("secret"), ssl.SSLCertVerificationError("secret")),
            StorageError,
        ),
        (RuntimeError("secret"), StorageError),
        (NotImplementedError("secret"), StorageError),
    ],
)
def test_exceptions_become_ours_without_their_text(error, wanted):
    ours = client_error(error, URL)
    assert type(ours) is wanted
    assert URL in str(ours)
    assert "secret" not in str(ours)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (socket.gaierror(socket.EAI_NONAME, "secret"), "its host was not found; check the URL"),
        (ConnectionRefusedError("secret"), "the connection was refused; check the URL or endpoint"),
        (asyncio.TimeoutError("secret"), "it timed out; check the network"),
        (ConnectionResetError("secret"), "the connection failed; it may be tried again"),
        (
            aio.ClientOSError(errno.EMFILE, "secret"),
            "too many files are open; raise the limit (ulimit -n)",
        ),
        (response_error(403), "check the credentials, its access rules, and region and endpoint"),
        (response_error(404), "does not exist; check the URL, and region and endpoint"),
        (response_error(503), "the server answered 503; it may be tried again"),
    ],
)
def test_says_what_to_look_at(error, hint):
    assert hint in str(client_error(error, URL))
    behind = client_error(caused(RuntimeError("secret"), error), URL)
    assert hint in str(behind)
    assert "secret" not in str(behind)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (response_error(429, **{"retry-after": "7"}), 7.0),
        (response_error(429), 0.0),
        (response_error(503, **{"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}), 0.0),
        (
            response_error(
                503,
                **{
                    "date": "Sun, 06 Nov 1994 08:49:37 GMT",
                    "retry-after": "Sunday, 06-Nov-94 08:50:07 GMT",
                },
            ),
            30.0,
        ),
        (response_error(503, **{"retry-after": "Wed, 99 Oct 2026 07:28:00 GMT"}), 0.0),
        (response_error(503, **{"retry-after": "-1"}), 0.0),
        (
            ServiceError(
                response={
                    "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "2"}}
                }
            ),
            2.0,
        ),
        (
            ServiceError(response=SimpleNamespace(status_code=503, headers={"retry-after": "3"})),
            3.0,
        ),
    ],
)
def test_keeps_what_the_server_asks_for(error, seconds):
    assert client_error(error, URL).retry_after == seconds


def test_a_date_without_that_of_the_server_is_compared_with_this_clock():
    later = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=90), usegmt=True)
    error = client_error(response_error(503, **{"retry-after": later}), URL)
    assert 80 < error.retry_after <= 90


def test_tells_the_reason_where_it_is_harmless():
    assert "No space left" in str(client_error(OSError(errno.ENOSPC, "x"), URL))
    assert "RuntimeError" in str(client_error(RuntimeError("x"), URL))
    assert "does not support" in str(client_error(NotImplementedError(), URL))
    assert "Please install gcsfs" in str(client_error(ImportError("Please install gcsfs"), URL))
    wrong = TypeError("F.__init__() got an unexpected keyword argument 'hots'")
    assert "takes no option 'hots'" in str(client_error(wrong, URL))
    assert "secret" not in str(client_error(TypeError("f(secret)"), URL))


def test_a_missing_bucket_of_another_operation_is_not_that_of_this_one():
    def handled(error, context):
        error.__context__ = context
        return error

    answer = OSError("(NoSuchBucket)")
    missing = handled(client_error(answer, "s3://bucket/k"), answer)
    assert missing.bucket == "bucket"
    assert client_error(handled(KeyError("Body"), answer), "s3://bucket/k").bucket == "bucket"
    denied = client_error(handled(PermissionError(), missing), "/data/set/k")
    assert type(denied) is AccessDenied


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("/data/set/k", True),
        ("file:/data/set/k", True),
        ("file:///data/set/k", True),
        ("s3://bucket/k", False),
        ("simplecache::s3://bucket/k", False),
        ("dbfs:/Volumes/c/s/v/k", False),
        ("hdfs:/data/k", False),
    ],
)
def test_says_what_to_look_at_on_this_machine_or_on_a_server(url, is_local):
    denied, missing = error_of_status(403, url), error_of_status(404, url)
    assert ("check the owner and mode" in str(denied)) == is_local
    assert ("check the credentials" in str(denied)) != is_local
    assert ("check the path" in str(missing)) == is_local
