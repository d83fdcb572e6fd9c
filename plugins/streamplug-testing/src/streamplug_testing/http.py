"""HTTP file server for tests, with range requests, request counts, delays and corrupt responses."""

from __future__ import annotations

import http.server
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_CHUNK = 1 << 16
_PATIENCE = 600
"""Timeout in seconds; longer than any test, so that a test that completes did not wait for it."""


class FileServer(http.server.ThreadingHTTPServer):
    """Serves the files of a directory, with range requests.

    Attributes:
        url: Base URL.
        root: The served directory.
        bytes_sent: Bytes of content sent so far.
        requests: Method, path and range (start, stop) or None of every request.
        seconds: Delay before each response.
        ranges: Whether range requests are supported; else it sends whole files.
        tags: Whether responses have an ETag.
        conditions: Whether If-Match is supported; else it is ignored.
        lie: Called with path, range and content; returns the content to send instead, or None for
            status 416.
        refuses: Called with method and target of a request; returns the status to answer with, or 0.
        refusal_headers: Further headers of these answers, such as Retry-After.
        headers: Further headers of responses with content.
        holds: Returns whether responses for a path pause half-way until `gate` is set.
        gate: Resumes paused responses.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, root: Path, address: Any = ("127.0.0.1", 0)) -> None:
        super().__init__(address, _Handler)
        self.root, self.url = root, f"http://127.0.0.1:{self.server_port}"
        self.bytes_sent = 0
        self.requests: list[tuple[str, str, tuple[int, int] | None]] = []
        self.seconds = 0.0
        self.ranges = self.tags = self.conditions = True
        self.lie: Callable[[str, tuple[int, int] | None, bytes], bytes | None] = _truth
        self.refuses: Callable[[str, str], int] = lambda _method, _target: 0
        self.refusal_headers: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.holds: Callable[[str], bool] = lambda _: False
        self.gate = threading.Event()
        self.lock = threading.Lock()

    def replace_after(self, responses: int, path: Path, data: bytes) -> None:
        """Replace a file when the content of so many further responses has been read from it."""
        remaining = iter(range(responses - 1, -1, -1))

        def lie(_where: str, _range: tuple[int, int] | None, content: bytes) -> bytes:
            with self.lock:
                if next(remaining, None) == 0:
                    staging = path.with_name(f"{path.name}.new")
                    staging.write_bytes(data)
                    staging.replace(path)
            return content

        self.lie = lie

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: some tests have clients that disconnect."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: FileServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        server, where = self.server, unquote(urlsplit(self.path).path).lstrip("/")
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        byte_range = (int(match[1]), int(match[2]) + 1) if match and server.ranges else None
        with server.lock:
            server.requests.append((self.command, where, byte_range))
        time.sleep(server.seconds)
        if status := server.refuses(self.command, self.path):
            self._refuse(status)
            return
        path = server.root / where
        if not path.is_file():
            self.send_error(404)
            return
        self._answer(path, where, byte_range)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        for name, value in self.server.refusal_headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def _answer(self, path: Path, where: str, byte_range: tuple[int, int] | None) -> None:
        status = path.stat()
        size, self._tag = status.st_size, f'"{status.st_mtime_ns:x}-{status.st_ino:x}"'
        start, stop = byte_range or (0, size)
        if self.server.conditions and self.headers.get("If-Match", self._tag) != self._tag:
            self.send_error(412)
            return
        if self.command == "HEAD":
            self._head(200, size)
            return
        with path.open("rb") as stream:
            stream.seek(start)
            data = self.server.lie(where, byte_range, stream.read(max(stop - start, 0)))
        if data is None or (byte_range and start >= size):
            self.send_error(416)
            return
        content = f"bytes {start}-{start + len(data) - 1}/{size}" if byte_range else ""
        self._head(206 if byte_range else 200, len(data), content)
        for at in range(0, len(data), _CHUNK):
            if at >= len(data) // 2 and self.server.holds(where):
                self.wfile.flush()
                self.server.gate.wait(_PATIENCE)
            self.wfile.write(data[at : at + _CHUNK])
        with self.server.lock:
            self.server.bytes_sent += len(data)

    def _head(self, status: int, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if self.server.tags:
            self.send_header("ETag", self._tag)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()


def _truth(_path: str, _byte_range: tuple[int, int] | None, data: bytes) -> bytes:
    return data


@contextmanager
def serving(root: Path) -> Iterator[FileServer]:
    """Serve a directory during a block."""
    server = FileServer(root)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """Return a free port of 127.0.0.1, for a server that binds it later.

    It is below the ports that the system assigns, so that no other process is assigned it meanwhile.
    """
    # Not of the global generator: processes may have given it the same seed.
    numbers = random.SystemRandom()
    while True:
        port = numbers.randrange(20_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
