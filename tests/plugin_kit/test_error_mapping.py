from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
from itertools import islice
from urllib.error import URLError

import pytest

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.plugin_kit import causes_of, storage_error

URL = "x://host/k"


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FileNotFoundError("secret"), NotFound, "does not exist; check the URL"),
        (IsADirectoryError("secret"), NotFound, "does not exist"),
        (PermissionError("secret"), AccessDenied, "check the credentials"),
        (ConnectionResetError("secret"), Transient, "the connection failed; it may be tried again"),
        (ConnectionRefusedError("secret"), Transient, "the connection was refused"),
        (asyncio.TimeoutError("secret"), Transient, "it timed out; check the network"),
        (socket.gaierror(socket.EAI_AGAIN, "secret"), Transient, "its host was not found"),
        (OSError(errno.ESTALE, "secret"), Transient, "the connection failed"),
        (http.client.IncompleteRead(b"secret"), Transient, "IncompleteRead"),
        (URLError(socket.gaierror(socket.EAI_AGAIN, "secret")), Transient, "URLError"),
        (caused(FileNotFoundError("secret"), ConnectionResetError("secret")), Transient, "Reset"),
        (ssl.SSLCertVerificationError("secret"), StorageError, "no trusted connection"),
        (OSError(errno.EIO, "secret"), StorageError, "Input/output error"),
        (ImportError("Please install gcsfs"), StorageError, "Please install gcsfs"),
        (ValueError("secret"), StorageError, "ValueError"),
    ],
    ids=repr,
)
def test_errors_become_ours_without_their_text(error, kind, text):
    ours = storage_error(error, URL)
    assert type(ours) is kind
    assert URL in str(ours)
    assert text in str(ours)
    assert "secret" not in str(ours)


@pytest.mark.parametrize("url", ["/data/k", "file:///data/k", "file:/data/k"])
def test_errors_of_local_files_say_what_to_do_on_this_machine(url):
    assert "check the path" in str(storage_error(FileNotFoundError(), url))
    assert "check the owner and mode" in str(storage_error(PermissionError(), url))
    full = storage_error(OSError(errno.ENOSPC, "x"), url)
    assert "make room there, or write to another disk" in str(full)


def test_causes_in_a_circle_end():
    first, second = OSError("first"), OSError("second")
    first.__cause__ = first  # as of `raise first from first`
    assert list(islice(causes_of(first), 5)) == [first]
    first.__cause__, second.__context__ = second, first
    assert list(islice(causes_of(first), 5)) == [first, second]
    assert list(islice(causes_of(first, contexts=True), 5)) == [first, second]
    assert list(islice(causes_of(second, contexts=True), 5)) == [second, first]
