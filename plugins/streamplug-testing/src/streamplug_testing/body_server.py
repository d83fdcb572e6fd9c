"""HTTP server for tests whose answers have no end, unless they have a Content-Length."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from streamplug.errors import StorageError
from streamplug.interfaces import Storage

_BLOCK = bytes(1 << 16)
MAX_SENT_BYTES = 192 << 20
"""Where an answer ends after all, so that a client that reads everything fails its test."""


class EndlessServer(http.server.ThreadingHTTPServer):
    """Answers every request with a body that does not end, or with as many zeros as its Content-Length.

    Attributes:
        url: Base URL.
        sent_bytes: Bytes of bodies sent so far.
    """

    daemon_threads = True

    def __init__(self, status: int, headers: Mapping[str, str], *, chunked: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.status, self.headers, self.chunked = status, headers, chunked
        self.sent_bytes = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EndlessServer

    def log_message(self, *_: object) -> None:
        """Write nothing to the standard error."""

    def do_GET(self) -> None:
        self.close_connection = True
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        with suppress(OSError):  # the client has gone
            self.end_headers()
            sent = 0
            if size := self.server.headers.get("Content-Length"):
                self.wfile.write(bytes(int(size)))
                return
            while self.command != "HEAD" and sent < MAX_SENT_BYTES:
                chunk = b"%x\r\n%b\r\n" % (len(_BLOCK), _BLOCK) if self.server.chunked else _BLOCK
                self.wfile.write(chunk)
                sent += len(_BLOCK)
                self.server.sent_bytes += len(_BLOCK)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()


@contextmanager
def endless_server(
    status: int = 206, headers: Mapping[str, str] | None = None, *, chunked: bool = True
) -> Iterator[EndlessServer]:
    """Yield a server that answers with a status, and with bytes until the client closes the connection.

    Args:
        status: HTTP status of all answers.
        headers: Headers of all answers, such as a Content-Range.
        chunked: Whether bodies are chunked; else only the end of the connection ends them.
    """
    server = EndlessServer(status, headers or {}, chunked=chunked)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def check_ranges_are_bounded(
    make_storage: Callable[[str], Storage],
    *,
    may_ignore_ranges: bool = False,
    has_http_ranges: bool = True,
) -> None:
    """Check that a storage reads no more of an endless answer to a range request than was asked for.

    Nor may it take an answer for the range that says that it begins elsewhere.

    Args:
        make_storage: Returns a storage for the URL of a server.
        may_ignore_ranges: Whether a whole object as the answer gives the range; else it is an error.
        has_http_ranges: Whether it asks by the Range of HTTP, rather than by parameters of a URL.
    """
    headers = {"Content-Range": "bytes 5-14/99", "ETag": '"e"', "Content-Type": "text/plain"}
    for status in (206, 200):
        for chunked in (True, False):
            with endless_server(status, headers, chunked=chunked) as server:
                storage = make_storage(server.url)
                try:
                    data = storage.read_range("k", 5, 15)
                except StorageError as error:
                    assert "bytes that were asked for" in str(error), error  # noqa: PT017 - else branch
                    assert storage.url_of("k") in str(error), error  # noqa: PT017 - else branch
                else:
                    assert (status, may_ignore_ranges, data) == (200, True, bytes(10))
                finally:
                    storage.close()
                assert server.sent_bytes < MAX_SENT_BYTES // 4
    if not has_http_ranges:
        return
    others = {**headers, "Content-Range": "bytes 4-13/99", "Content-Length": "10"}
    with (
        endless_server(206, others, chunked=False) as server,
        closing(make_storage(server.url)) as storage,
    ):
        try:
            storage.read_range("k", 5, 15)
        except StorageError as error:
            assert storage.url_of("k") in str(error), error  # noqa: PT017 - else branch
        else:
            raise AssertionError("bytes 4 to 13 were taken for bytes 5 to 14")
