"""How much of what a server takes several ranks use, and how many of their requests it refuses.

    python tests/benchmarks/bench_throttle.py [--rates 200] [--seconds 60] [--json FILE]

A server on this machine takes a number of requests a second, and answers 429 to the rest, with or without
Retry-After: from a bucket of tokens that a second fills, or by the second of the clock. Eight processes, two
for each of four ranks, read ranges of 4 to 64 kB, 16 at once, and those that are refused again. Reported are,
after the time in which the rate is found: the requests that the server took, in percent of those that it
would take; the requests that it refused, in percent of all; and the smallest number of requests of a rank by
the largest. Without a limit of the server, the limiter takes turns with none.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamplug.errors import StorageError
from streamplug.interfaces import Storage
from streamplug.plugin import open_storage
from streamplug.transfer import call_with_retries

FILE_BYTES, AT_ONCE, SMALLEST, LARGEST = 64 << 20, 16, 4 << 10, 64 << 10
RANKS, WORKERS = 4, 2
SETTLING_SECONDS = 20.0


class Quota:
    """The requests that a server takes: a bucket of tokens, or a number for each second of the clock."""

    def __init__(self, rate: float, *, by_clock: bool) -> None:
        self.rate, self.by_clock = rate, by_clock
        self.left, self.at = rate, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        if self.by_clock:
            if int(now) != int(self.at):
                self.left = self.rate
        else:
            self.left = min(self.left + (now - self.at) * self.rate, self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def serve(pipe: Connection) -> None:
    """Serve one file; take quotas, and tell the requests that were taken and refused, by rank."""
    import asyncio

    from aiohttp import web

    data = bytes(FILE_BYTES)
    quota: Quota | None = None
    retry_after = False
    counts = {"refused": 0}

    async def answer(request: web.Request) -> web.Response:
        if quota is not None and not quota.take():
            counts["refused"] += 1
            return web.Response(status=429, headers={"Retry-After": "1"} if retry_after else {})
        rank = request.headers.get("X-Rank", "")
        counts[rank] = counts.get(rank, 0) + 1
        start, stop = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        headers = {"Content-Range": f"bytes {start}-{stop}/{FILE_BYTES}", "ETag": '"1"'}
        return web.Response(status=206, body=data[start : stop + 1], headers=headers)

    async def main() -> None:
        nonlocal quota, retry_after
        application = web.Application()
        application.router.add_get("/{name}", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        while (message := await asyncio.to_thread(pipe.recv)) is not None:
            if message:
                rate, by_clock, retry_after = message
                quota = Quota(rate, by_clock=by_clock) if rate else None
            pipe.send(dict(counts))
            counts.clear()
            counts["refused"] = 0

    asyncio.run(main())


def read(scheme: str, port: int, rank: int, number: int, rate_limit: bool) -> None:
    """Read ranges until the process is ended."""
    logging.disable(logging.WARNING)  # of each retry
    options: dict[str, Any] = {"headers": {"X-Rank": str(rank)}, "rate_limit": rate_limit}
    storage = open_storage(f"{scheme}://127.0.0.1:{port}", options)
    draws = random.Random(number)
    while True:
        parts = []
        for _ in range(AT_ONCE):
            start = draws.randrange(FILE_BYTES - LARGEST)
            parts.append(("file", start, start + draws.randrange(SMALLEST, LARGEST)))

        call_with_retries(partial(read_rest, storage, parts), 1000)


def read_rest(storage: Storage, parts: list[tuple[str, int, int]]) -> None:
    """Read parts, and remove those that were read."""
    results = storage.read_many(parts)
    failed = {
        part: result for part, result in zip(parts, results) if isinstance(result, StorageError)
    }
    parts[:] = list(failed)
    for error in failed.values():
        raise error


def measure(
    pipe: Connection,
    port: int,
    scheme: str,
    quota: tuple[float, bool, bool],
    rate_limit: bool,
    seconds: float,
) -> dict[str, float]:
    """Return the figures of one server; `seconds` are those after the rate is found."""
    pipe.send(quota)
    pipe.recv()
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=read, args=(scheme, port, rank, 2 * rank + n, rate_limit), daemon=True)
        for rank in range(RANKS)
        for n in range(WORKERS)
    ]
    for process in processes:
        process.start()
    pipe.send(())
    while sum(pipe.recv().values()) < AT_ONCE:
        time.sleep(0.1)
        pipe.send(())
    time.sleep(SETTLING_SECONDS if quota[0] else 2.0)
    pipe.send(())
    pipe.recv()
    begun = time.monotonic()
    time.sleep(seconds)
    pipe.send(())
    counts = pipe.recv()
    seconds = time.monotonic() - begun
    for process in processes:
        process.kill()
        process.join()
    refused = counts.pop("refused")
    taken = sum(counts.values())
    found = {"rate": taken / seconds, "refused": refused / max(taken + refused, 1)}
    found["ranks"] = min(counts.values()) / max(counts.values()) if len(counts) == RANKS else 0.0
    if quota[0]:
        found["used"] = found["rate"] / quota[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=int, nargs="*", default=[200])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--schemes", nargs="+", default=["http", "obstore+http"])
    parser.add_argument(
        "--unlimited", type=int, default=3, help="turns without a limit of the server"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    port, found = here.recv(), {}
    print(f"{'':60}{'req/s':>8}{'used':>8}{'refused':>9}{'min/max':>9}")
    for scheme in arguments.schemes:
        for rate in arguments.rates:
            for by_clock in (False, True):
                for retry_after in (False, True):
                    for limit in (True, False):
                        name = (
                            f"{scheme}, {rate}/s {'by the clock' if by_clock else 'by tokens'}"
                            f"{', Retry-After' if retry_after else ''}"
                            f"{'' if limit else ', without the limiter'}"
                        )
                        quota = (float(rate), by_clock, retry_after)
                        row = measure(here, port, scheme, quota, limit, arguments.seconds)
                        found[name] = row
                        show(name, row)
        for turn in range(arguments.unlimited):
            for limit in (True, False):
                name = f"{scheme}, no limit{'' if limit else ', without the limiter'}, turn {turn}"
                row = measure(here, port, scheme, (0.0, False, False), limit, arguments.seconds / 4)
                found[name] = row
                show(name, row)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    server.terminate()


def show(name: str, row: dict[str, float]) -> None:
    used = f"{row['used']:8.1%}" if "used" in row else " " * 8
    print(f"{name:60}{row['rate']:8.0f}{used}{row['refused']:9.1%}{row['ranks']:9.2f}", flush=True)


if __name__ == "__main__":
    main()
