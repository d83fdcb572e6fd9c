"""A server of files for one node, whose bandwidth all of its connections share, after a latency."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamplug_testing import http

_CHUNK = 1 << 13
_ENDS_PAUSE = 0.01


class Paced(http.FileServer):
    """Serves files, all of them together at so many bytes per second."""

    def __init__(self, root: Path, bandwidth: float, latency: float) -> None:
        super().__init__(root)
        self.RequestHandlerClass = _Handler
        self.seconds, self._bandwidth = latency, bandwidth
        self._turn, self._free = threading.Lock(), 0.0

    def wait_for(self, size: int) -> None:
        """Return when so many bytes have been let through."""
        with self._turn:
            self._free = max(self._free, time.perf_counter() - _ENDS_PAUSE) + size / self._bandwidth
            due = self._free
        time.sleep(max(due - time.perf_counter(), 0))


class _Handler(http._Handler):
    def setup(self) -> None:
        super().setup()
        self.wfile = _Slow(self.wfile, self.server)


class _Slow:
    """Writes what is long chunk by chunk."""

    def __init__(self, file: Any, server: Paced) -> None:
        self._file, self._server = file, server

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        for at in range(0, len(view), _CHUNK):
            chunk = view[at : at + _CHUNK]
            if len(data) > _CHUNK:  # heads of answers cost nothing
                self._server.wait_for(len(chunk))
            self._file.write(chunk)
            self._file.flush()
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _serve(pipe: Any, root: Path, bandwidth: float, latency: float) -> None:
    server = Paced(root, bandwidth, latency)
    pipe.send(server.server_port)
    server.serve_forever(0.05)


@contextmanager
def paced(root: Path, bandwidth: float, latency: float, *, process: bool) -> Iterator[str]:
    """Serve a directory, in a process of its own or on threads; yields the URL."""
    with (
        _in_process(root, bandwidth, latency)
        if process
        else _on_threads(root, bandwidth, latency) as url
    ):
        yield url


@contextmanager
def _on_threads(root: Path, bandwidth: float, latency: float) -> Iterator[str]:
    server = Paced(root, bandwidth, latency)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _in_process(root: Path, bandwidth: float, latency: float) -> Iterator[str]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, root, bandwidth, latency), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join(10)
