"""A line on which it takes long until the whole of a blob is there."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest
from streamplug_adlfs.storage import AzureStorage

from streamplug.transfer.stall_timeout import TimeoutStorage

RATE = 4_000_000
"""Bytes in a second, of all connections together."""


@pytest.fixture
def slow(container):
    """The URL of the account on the server, over a slow line."""
    server, line = urlsplit(container.endpoint), threading.Lock()
    busy_until = [0.0]

    def there(one, other):
        with suppress(OSError), closing(other):
            while data := one.recv(1 << 16):
                other.sendall(data)

    def back(one, other):
        with suppress(OSError), closing(other):
            while data := one.recv(1 << 14):
                with line:
                    busy_until[0] = max(busy_until[0], time.monotonic()) + len(data) / RATE
                # Until a point in time, as short sleeps take longer where others work.
                time.sleep(max(0.0, busy_until[0] - time.monotonic()))
                other.sendall(data)

    def accept():
        with suppress(OSError):
            while True:
                near = listening.accept()[0]
                far = socket.create_connection((server.hostname, server.port))
                threading.Thread(target=there, args=(near, far), daemon=True).start()
                threading.Thread(target=back, args=(far, near), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{server.path}"
        listening.shutdown(socket.SHUT_RDWR)


def test_a_slow_download_is_not_one_that_stalls(container, slow, tmp_path, monkeypatch):
    # Parts so small that each arrives long before the timeout, also on a busy machine.
    monkeypatch.setattr("streamplug_adlfs.filesystem._PART", 1 << 20)
    data = bytes(range(256)) * (3 << 14)  # some three seconds of the line
    container.put("k", data)
    options = {**container.options, "endpoint_url": slow}
    began = time.monotonic()
    TimeoutStorage(AzureStorage(f"az://{container.name}", **options), 2.0).download(
        "k", tmp_path / "k"
    )
    assert time.monotonic() - began > 2.0
    assert (tmp_path / "k").read_bytes() == data
