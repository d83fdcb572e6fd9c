"""Servers that fail, processes that read through them, and where the figures of the whole campaign go.

With STREAMPLUG_TEST_FAULTS in the environment, the name of a file for the figures, the whole campaign
runs; else a small one.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from streamplug_testing.http import free_port

from streamplug import MDSWriter

HERE = Path(__file__).parent


@pytest.fixture
def figures() -> Iterator[dict[str, Any] | None]:
    """What the whole campaign found; None if only a small one runs."""
    place = os.environ.get("STREAMPLUG_TEST_FAULTS")
    if place is None:
        yield None
        return
    path = Path(place)
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    yield found
    path.write_text(json.dumps(found, indent=1) + "\n")


class Faulty:
    """A server of faulty.py in a process of its own.

    Attributes:
        url: Its address.
    """

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "faulty.py"), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def ask(self, order: str = "counts") -> dict[str, dict[str, int]]:
        with urllib.request.urlopen(f"{self.url}/-/{order}", timeout=30) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def aim(self, name: str, kind: str) -> None:
        """Let every request for a file fail in this way; "none" for no longer."""
        self.ask(f"aim/{name}/{kind}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def faulty() -> Iterator[Callable[..., Faulty]]:
    """Start a server: `faulty("--root", folder, "--rate", 0.1)`."""
    started: list[Faulty] = []

    def start(*arguments: object) -> Faulty:
        started.append(Faulty(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def processes() -> Iterator[Callable[..., Any]]:
    """Start a program of this folder: `processes("rank.py", **task)`; killed when the test ends."""
    context = multiprocessing.get_context("forkserver")
    started: list[Any] = []

    def start(program: str, **task: Any) -> Any:
        process = context.Process(target=runpy.run_path, args=(str(HERE / program), {"TASK": task}))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join(20)


@pytest.fixture(scope="session")
def content() -> Callable[[int], bytes]:
    """The bytes of a sample, which its id decides."""
    return content_of


def content_of(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(4, "little")).digest() * (12 + number % 5)


@pytest.fixture
def write() -> Callable[..., int]:
    """Write shards of 16 samples, the last of 11; returns how many bytes the largest takes."""

    def make(folder: Path | str, shards: int, **arguments: Any) -> int:
        columns = {"id": "int", "data": "bytes"}
        with MDSWriter(out=str(folder), columns=columns, size_limit=15_000, **arguments) as out:
            for number in range(16 * shards - 5):
                out.write({"id": number, "data": content_of(number)})
        if not isinstance(folder, Path):
            return 0
        files = json.loads((folder / "index.json").read_text())["shards"]
        assert len(files) == shards
        assert {shard["samples"] for shard in files[:-1]} == {16}
        both = ((shard["raw_data"], shard["zip_data"] or {"bytes": 0}) for shard in files)
        return max(raw["bytes"] + packed["bytes"] for raw, packed in both)

    return make


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """moto: Amazon S3; any key and secret will do."""
    pytest.importorskip("moto")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
    try:
        while not _answers(f"{url}/moto-api/"):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False
