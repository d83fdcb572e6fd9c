"""A server that fails as often as it is told: files of a directory, or what another server answers.

    python faulty.py --root DIRECTORY | --upstream URL  [--rate 0.1] [--seed 1] [--kinds reset stall]

It prints its port. What becomes of the n-th request for a path depends on nothing but the seed, the path
and n. ``GET /-/counts`` tells what it did; ``GET /-/aim/NAME/KIND`` lets every request for a file fail,
``KIND-once`` the next, "none" no more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

KINDS = (
    "latency",
    "reset",
    "reset-middle",
    "truncated",
    "short",
    "flipped",
    "stall",
    "stall-middle",
    "500",
    "503",
    "503-after",
    "429",
    "429-after",
)
"""What can happen to a request.

- latency: the answer comes up to 0.2 s late
- reset, reset-middle: the connection breaks before, or half-way through the body
- truncated: the connection ends half-way, though Content-Length promises all
- short: a whole answer, of half of the bytes
- flipped: one bit is another
- stall, stall-middle: nothing comes any more, before or half-way through the body
- the rest: a status, for up to four requests in a row; "-after" with Retry-After
"""

HARMLESS = {"latency"}
LONGEST_BURST = 4
_OF_BODIES = {"reset-middle", "truncated", "short", "flipped", "stall-middle"}
_OF_CHECKED = {"short", "flipped"}
"""Only for files whose size and digest the index has."""


@dataclass
class Request:
    """What a client asked for."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)


@dataclass
class Answer:
    """What it is told."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


Source = Callable[[Request], Coroutine[Any, Any, Answer]]


class Fates:
    """Draws what becomes of requests, and counts it."""

    def __init__(self, rate: float, seed: int, kinds: list[str]) -> None:
        self._seed, self._kinds = seed, kinds
        lengths = [(1 + LONGEST_BURST) / 2 if kind[0].isdigit() else 1 for kind in kinds]
        mean = sum(lengths) / len(lengths)
        self._chance = rate / (mean - rate * (mean - 1))  # that one begins
        self._draws: dict[str, random.Random] = {}
        self._bursts: dict[str, list[str]] = {}
        self.aimed: dict[str, str] = {}
        self.faults: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()

    def of(self, request: Request, size: int) -> str | None:
        """Return what becomes of a request whose answer has a body of so many bytes."""
        path = request.path
        self.requests[f"{request.method} {path}"] += 1
        name = path.rpartition("/")[2]
        kind = self.aimed.get(name) or self._drawn(path)
        if kind is None:
            return None
        if kind.endswith("-once"):
            kind = self.aimed.pop(name).removesuffix("-once")
        checked = name.startswith("shard.")
        if (kind in _OF_BODIES and size < 2) or (kind in _OF_CHECKED and not checked):
            kind = "reset"
        self.faults[kind] += 1
        return kind

    def _drawn(self, path: str) -> str | None:
        if self._bursts.get(path):
            return self._bursts[path].pop()
        draw = self._draws.setdefault(path, random.Random(f"{self._seed} {path}"))
        if not self._kinds or draw.random() >= self._chance:
            return None
        kind = draw.choice(self._kinds)
        if kind[0].isdigit():
            self._bursts[path] = [kind] * (draw.randint(1, LONGEST_BURST) - 1)
        return kind


class Faulty:
    """Serves connections."""

    def __init__(self, source: Source, fates: Fates, stall: float, pace: float) -> None:
        """Answer with what `source` says and `fates` leave of it.

        Args:
            source: Answers requests truly.
            fates: Draws faults.
            stall: Seconds for which nothing comes before the connection breaks.
            pace: Seconds that every body takes.
        """
        self._source, self._fates, self._stall, self._pace = source, fates, stall, pace
        self._late = random.Random(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it ends."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            while await self._one(reader, writer):
                pass
        writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await read_request(reader)
        if request.path.startswith("/-/"):
            answer, kind = self._control(request.path), None
        else:
            answer = await self._source(request)
            size = 0 if request.method == "HEAD" else len(answer.body)
            kind = self._fates.of(request, size)
        if kind == "latency":
            await asyncio.sleep(self._late.uniform(0.02, 0.2))
        elif kind == "reset":
            writer.transport.abort()
            return False
        elif kind == "stall":
            await asyncio.sleep(self._stall)
            writer.transport.abort()
            return False
        elif kind is not None and kind[0].isdigit():
            after = {"Retry-After": "1"} if kind.endswith("-after") else {}
            answer = Answer(int(kind[:3]), b"try again\n", after)
        elif kind == "short":
            answer = shortened(answer)
        elif kind == "flipped":
            answer.body = flipped(answer.body)
        return await self._send(request, answer, kind, writer)

    async def _send(
        self, request: Request, answer: Answer, kind: str | None, writer: asyncio.StreamWriter
    ) -> bool:
        length = answer.headers.pop("Content-Length", str(len(answer.body)))
        length = length if request.method == "HEAD" else str(len(answer.body))
        headers = {**answer.headers, "Content-Length": length, "Connection": "keep-alive"}
        lines = [f"HTTP/1.1 {answer.status} Said", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if request.method == "HEAD":
            await writer.drain()
            return True
        half = len(answer.body) // 2
        writer.write(answer.body[:half])
        await writer.drain()
        if self._pace:
            await asyncio.sleep(self._pace)
        if kind in ("reset-middle", "stall-middle"):
            await asyncio.sleep(self._stall if kind == "stall-middle" else 0.005)
            writer.transport.abort()
            return False
        if kind == "truncated":
            return False
        writer.write(answer.body[half:])
        await writer.drain()
        return True

    def _control(self, path: str) -> Answer:
        order = path.split("/")[2:]
        if order[0] == "aim":
            self._fates.aimed[order[1]] = order[2]
            if order[2] == "none":
                del self._fates.aimed[order[1]]
        counts = {"faults": self._fates.faults, "requests": self._fates.requests}
        return Answer(200, json.dumps(counts).encode())


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read a request."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, target, headers, body)


def shortened(answer: Answer) -> Answer:
    """Return an answer that has half of the bytes and does not say so."""
    body = answer.body[: len(answer.body) // 2]
    headers = dict(answer.headers)
    if found := re.fullmatch(r"bytes (\d+)-\d+/(\d+)", headers.get("Content-Range", "")):
        stop = int(found[1]) + len(body) - 1
        headers["Content-Range"] = f"bytes {found[1]}-{stop}/{found[2]}"
    return Answer(answer.status, body, headers)


def flipped(body: bytes) -> bytes:
    """Return bytes of which one has another bit."""
    damaged = bytearray(body)
    damaged[len(body) // 3] ^= 0x40
    return bytes(damaged)


def files(root: Path) -> Source:
    """Return what answers with the files of a directory, which do not change."""
    known: dict[str, bytes] = {}

    async def answer(request: Request) -> Answer:
        name = request.path.lstrip("/")
        if name not in known:
            if not (root / name).is_file():
                return Answer(404)
            known[name] = (root / name).read_bytes()
        data, headers = known[name], {"Accept-Ranges": "bytes"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if request.method == "HEAD":
            return Answer(200, b"", {**headers, "Content-Length": str(len(data))})
        if found is None:
            return Answer(200, data, headers)
        start, stop = int(found[1]), min(int(found[2]) + 1, len(data))
        if start >= len(data):
            return Answer(416)
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Answer(206, data[start:stop], headers)

    return answer


def upstream(url: str) -> Source:
    """Return what passes requests on to another server."""
    place = urlsplit(url)

    async def answer(request: Request) -> Answer:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        headers = {**request.headers, "connection": "close", "accept-encoding": "identity"}
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        first, *rest = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        told = {name.strip().title(): value.strip() for name, _, value in pairs}
        if told.pop("Transfer-Encoding", "") == "chunked":
            body = unchunked(body)
        told.pop("Connection", None)
        return Answer(int(first.split(" ")[1]), body, told)

    return answer


def unchunked(data: bytes) -> bytes:
    """Return the content of chunks."""
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        parts.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return b"".join(parts)


async def main(arguments: argparse.Namespace) -> None:
    source = files(arguments.root) if arguments.root else upstream(arguments.upstream)
    fates = Fates(arguments.rate, arguments.seed, arguments.kinds)
    faulty = Faulty(source, fates, arguments.stall, arguments.pace)
    server = await asyncio.start_server(faulty.serve, "127.0.0.1", 0, limit=1 << 20, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until its parent ends
    os._exit(0)  # whatever is being asked


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path)
    parser.add_argument("--upstream")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--stall", type=float, default=3.0)
    parser.add_argument("--pace", type=float, default=0.0)
    asyncio.run(main(parser.parse_args()))
