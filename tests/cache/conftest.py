"""A counting HTTP server, data sets whose every byte is known, and processes that read them."""

from __future__ import annotations

import json
import multiprocessing
import runpy
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streamplug import MDSWriter

READER = Path(__file__).with_name("reader.py")
PER_SHARD = 8


class Server(ThreadingHTTPServer):
    """Serves a directory; counts what is asked for, and does as `hooks` say, by file name."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.root = root
        self.gets: Counter[str] = Counter()
        self.hooks: dict[str, Callable[[Handler], bool]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed."""


class Handler(SimpleHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    # Bodies follow their headers in a packet of their own, which would wait 40 ms for an acknowledgment.
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.gets[name] += 1
        hook = self.server.hooks.get(name)
        if hook is None or not hook(self):
            super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    servers = []

    def start(root: Path) -> Server:
        server = Server(root)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def payload(number: int) -> bytes:
    return number.to_bytes(4, "little") * 250


@pytest.fixture
def write() -> Callable[..., int]:
    """Write a set of shards of 8 samples or so many; returns the size of its largest shard."""

    def make(folder: Path, shards: int = 4, each: int = PER_SHARD, **arguments: Any) -> int:
        columns = {"id": "int", "data": "bytes"}
        limit = 1016 * each + 472  # of a sample, and the header
        with MDSWriter(out=str(folder), columns=columns, size_limit=limit, **arguments) as writer:
            for number in range(shards * each):
                writer.write({"id": number, "data": payload(number)})
        index = json.loads((folder / "index.json").read_text())
        assert [shard["samples"] for shard in index["shards"]] == [each] * shards
        sizes = [
            shard["raw_data"]["bytes"] + (shard["zip_data"] or {"bytes": 0})["bytes"]
            for shard in index["shards"]
        ]
        return max(sizes)

    return make


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)


@pytest.fixture
def readers() -> Iterator[Callable[..., Any]]:
    """Start a process that reads: `readers(method, **task)`; killed when the test ends."""
    started: list[Any] = []

    def start(method: str, **task: Any) -> Any:
        context = multiprocessing.get_context(method)
        process = context.Process(target=runpy.run_path, args=(str(READER), {"TASK": task}))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join(20)


class Monitor:
    """Notes the most that the shards of a cache took together."""

    def __init__(self, root: Path) -> None:
        self.root, self.peak, self._stop = root, 0, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.peak = max(self.peak, taken(self.root))
            time.sleep(0.002)


def taken(root: Path) -> int:
    total = 0
    for path in root.rglob("shard*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


@pytest.fixture
def watch() -> type[Monitor]:
    return Monitor


@pytest.fixture
def ends_well() -> Callable[[list[Any]], None]:
    """Wait for processes; they must end by themselves, without an error."""

    def wait(processes: list[Any]) -> None:
        end = time.monotonic() + 90
        for process in processes:
            process.join(max(end - time.monotonic(), 0.1))
        assert [process.exitcode for process in processes] == [0] * len(processes)

    return wait


@pytest.fixture
def check_cache() -> Callable[[Path, Path], None]:
    """Check that a cache holds nothing damaged, no leftovers, and no more than it says."""

    def check(far: Path, near: Path) -> None:
        state = near / ".streamplug"
        assert list((state / "tmp").iterdir()) == []
        assert not (state / "files.new").exists()
        index = json.loads((far / "index.json").read_text())
        raw = {shard["raw_data"]["basename"]: shard for shard in index["shards"]}
        listed = {json.loads(line) for line in (state / "files").read_text().splitlines()}
        from streamplug.index.hashes import new_hash

        for path in near.glob("shard*"):
            assert path.name in listed
            if path.name in raw:
                digest = new_hash("sha1")
                digest.update(path.read_bytes())
                assert digest.hexdigest() == raw[path.name]["raw_data"]["hashes"]["sha1"]
            else:
                assert path.read_bytes() == (far / path.name).read_bytes()

    return check


@pytest.fixture
def kill() -> Callable[[Any], None]:
    def end(process: Any) -> None:
        process.kill()
        process.join(20)
        assert process.exitcode == -signal.SIGKILL

    return end
