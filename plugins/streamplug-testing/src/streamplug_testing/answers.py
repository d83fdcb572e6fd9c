"""Conformance tests of how storages over HTTP map server responses to errors."""

from __future__ import annotations

import http.server
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.interfaces import Storage
from streamplug_testing.creation import can_create
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.multi_range import read_parts_or_raise

OPERATIONS: Mapping[str, Callable[[Storage, Path], object]] = {
    "read": lambda storage, _: storage.read("k"),
    "read_range": lambda storage, _: storage.read_range("k", 0, 5),
    "read_ranges": lambda storage, _: storage.read_ranges("k", [(0, 14), (3, 9)]),
    "read_many": lambda storage, _: read_parts_or_raise(storage, ("k", 0, 14), ("k", 3, 9)),
    "download": lambda storage, path: storage.download("k", path),
    "stat": lambda storage, _: storage.stat("k"),
    "write": lambda storage, _: storage.write("k", b"x"),
    "upload": lambda storage, path: storage.upload(path.with_name("source"), "k"),
    "create": lambda storage, _: storage.create("k", b"x"),
    "delete": lambda storage, _: storage.delete("k"),
    "exists": lambda storage, _: storage.exists("k"),
    "list": lambda storage, _: list(storage.list("k")),
}
MAY_BE_MISSING = {"delete", "exists", "list"}
"""Operations that may succeed where there is no object."""
ERRORS: Mapping[int, type[StorageError]] = {
    400: StorageError,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    429: Transient,
    500: Transient,
    503: Transient,
}


@dataclass
class Recorder:
    """An HTTP server that records requests and sends configured responses.

    Attributes:
        url: Base URL.
        requests: Method, path and headers of each request.
        answers: Status and body of each response; the last one repeats. Status 0 drops the connection.
        headers: Sent with each response.
        wait: Delay before each response, in seconds; it ends with the block that the server is for.
        missing: Bytes by which bodies are shorter than their Content-Length, except those of errors.
    """

    url: str = ""
    requests: list[Any] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=lambda: [(200, b"data")])
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0.0
    missing: int = 0


class _Server(http.server.ThreadingHTTPServer):
    recorder: Recorder
    ended: threading.Event

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: some tests have clients that disconnect."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Bodies follow their headers in a packet of their own, which would wait 40 ms for an acknowledgment.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self) -> None:
        recorder = self.server.recorder
        # A copy, as this object serves all requests of a connection.
        request = SimpleNamespace(command=self.command, path=self.path, headers=self.headers)
        recorder.requests.append(request)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.ended.wait(recorder.wait)
        status, body = recorder.answers[0]
        if len(recorder.answers) > 1:
            recorder.answers.pop(0)
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        missing = recorder.missing if status < 400 else 0
        length = str(len(body) + missing)
        for name, value in {"Content-Length": length, **recorder.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection |= bool(missing)

    # Names required by BaseHTTPRequestHandler.
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815


@contextmanager
def recording() -> Iterator[Recorder]:
    """Run a recording server during a block; after it, connections are refused."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.ended = threading.Event()
    server.recorder = Recorder(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.recorder
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def limits_requests(storage: Any) -> bool:
    """Return whether the requests of a storage wait where a server refuses some."""
    return bool(getattr(storage, "limits_requests", False))


def check_limit(storage: Any, server: Recorder, refusal: tuple[int, bytes]) -> None:
    """Check that the requests of a storage wait after a status and body by which a server refuses one."""
    server.answers = [refusal]
    storage.rate_limiter.num_tolerated = 0
    with pytest.raises(Transient):
        storage.read("k")
    assert storage.rate_limiter.is_limiting
    storage.rate_limiter.note(429, {"retry-after": "20"})
    server.requests.clear()
    for name in ("read", "read_range", "read_ranges", "stat", "exists"):
        with pytest.raises(Transient, match="the server wants fewer requests"):
            OPERATIONS[name](storage, Path())
    assert server.requests == []


class AnswerTests(ConformanceBase):
    """Tests of the errors of a storage over HTTP; subclasses implement `make_storage`.

    Attributes:
        location: Prefix of its URLs, with which error messages begin; the tests read the key ``k``.
        first_request: Method and path of the only request that reading ``k`` makes.
        operations: Operations that a server may refuse by status alone.
        errors: Error type by HTTP status.
    """

    location: ClassVar[str]
    first_request: ClassVar[tuple[str, str]]
    operations: ClassVar[tuple[str, ...]] = (
        "read",
        "read_range",
        "read_ranges",
        "read_many",
        "download",
        "stat",
        "write",
        "upload",
        "create",
        "delete",
        "exists",
        "list",
    )
    errors: ClassVar[Mapping[int, type[StorageError]]] = ERRORS

    def make_storage(self, url: str, **options: Any) -> Storage:
        """Return a new instance for the server at this URL; options may include ``read_timeout``."""
        raise NotImplementedError

    def body(self, status: int) -> bytes:
        """Return the response body for an error status; it must contain ``feedbeef``."""
        return b'{"message": "signature feedbeef of %d"}' % status

    @pytest.fixture
    def server(self) -> Iterator[Recorder]:
        """A server whose responses the test configures."""
        with recording() as recorder:
            yield recorder

    @pytest.fixture
    def storage(self, server: Recorder) -> Iterator[Storage]:
        """A storage that uses that server, and waits for nothing if the server refuses requests."""
        storage = self.make_storage(server.url)
        if limits_requests(storage):
            storage.close()
            storage = self.make_storage(server.url, rate_limit=False)
        yield storage
        storage.close()

    def test_a_whole_read_is_one_request(self, server: Recorder, storage: Storage) -> None:
        assert storage.read("k") == b"data"
        assert [(r.command, r.path) for r in server.requests] == [self.first_request]

    def test_a_server_that_knows_no_ranges_is_understood(self, storage: Storage) -> None:
        assert storage.read_ranges("k", [(1, 3), (0, 9), (9, 12)]) == [b"at", b"data", b""]
        assert read_parts_or_raise(storage, ("k", 1, 3), ("k", 0, 9), ("k", 9, 12)) == [
            b"at",
            b"data",
            b"",
        ]

    def test_answers_become_our_errors(
        self, server: Recorder, storage: Storage, tmp_path: Path
    ) -> None:
        (tmp_path / "source").write_bytes(b"x")
        names = set(self.operations) - (set() if can_create(storage) else {"create"})
        for (status, expected), name in product(self.errors.items(), sorted(names)):
            server.answers = [(status, self.body(status))]
            if expected is NotFound and name in MAY_BE_MISSING:
                with suppress(NotFound):
                    assert not OPERATIONS[name](storage, tmp_path / "target")
            else:
                with pytest.raises(StorageError) as caught:
                    OPERATIONS[name](storage, tmp_path / "target")
                said = f"{name} answered by {status}: {caught.value!r}"
                assert type(caught.value) is expected, said
                where = self.location if name == "list" else f"{self.location}/k"
                assert where in str(caught.value), said
                assert "feedbeef" not in "".join(traceback.format_exception(caught.value)), said

    def test_requests_wait_where_the_server_refuses_some(self, server: Recorder) -> None:
        storage: Any = self.make_storage(server.url)
        if not limits_requests(storage):
            pytest.skip("its requests are not limited")
        check_limit(storage, server, (429, self.body(429)))
        storage.close()

    def test_connections_that_break_are_transient(self, server: Recorder, storage: Storage) -> None:
        server.answers = [(0, b"")]
        self._check_transient(storage, "read")

    def test_a_server_that_stalls_is_transient(self, server: Recorder) -> None:
        server.wait = 60.0
        storage = self.make_storage(server.url, read_timeout=0.2)
        self._check_transient(storage, "read")
        storage.close()

    @pytest.mark.parametrize("operation", ["read", "read_ranges", "read_many", "download"])
    def test_a_body_that_ends_early_is_transient(
        self, server: Recorder, storage: Storage, tmp_path: Path, operation: str
    ) -> None:
        server.missing = 10
        self._check_transient(storage, operation, tmp_path)

    def test_a_connection_that_is_refused_is_transient(self) -> None:
        # Bound, so that no other process gets the port, but not listening.
        with socket.socket() as gone:
            gone.bind(("127.0.0.1", 0))
            storage = self.make_storage(f"http://127.0.0.1:{gone.getsockname()[1]}")
            self._check_transient(storage, "read")
            storage.close()

    def _check_transient(self, storage: Storage, operation: str, folder: Path = Path()) -> None:
        with pytest.raises(Transient) as caught:
            OPERATIONS[operation](storage, folder / "target")
        assert f"{self.location}/k" in str(caught.value)
