"""How long steps wait for their ranges from a server that stalls now and then, with and without hedging.

    python tests/benchmarks/bench_hedging.py [--steps 300] [--json FILE]

A server on this machine answers a hundredth of all requests after two seconds. A step reads 64 ranges of 4 to
64 kB at once. Some steps come first, from which it is known how long requests take. Reported are the median
and the 99th percentile of the time of a step, and the bytes that the server sent beyond those that were asked
for.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

FILE_BYTES, RANGES, SMALLEST, LARGEST = 64 << 20, 64, 4 << 10, 64 << 10
STALL_SHARE, STALL_SECONDS = 0.01, 2.0
WARM = 5
STORAGES = ("http", "obstore+http")


def serve(pipe: Connection) -> None:
    """Serve one file; tell the port, and at each message the bytes that were sent so far."""
    import asyncio

    from aiohttp import web

    data, draws = bytes(FILE_BYTES), random.Random(0)
    sent = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal sent
        start, stop = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        if draws.random() < STALL_SHARE:
            await asyncio.sleep(STALL_SECONDS)
        body = data[start : stop + 1]
        sent += len(body)
        headers = {"Content-Range": f"bytes {start}-{stop}/{FILE_BYTES}", "ETag": '"1"'}
        return web.Response(status=206, body=body, headers=headers)

    async def main() -> None:
        application = web.Application()
        application.router.add_get("/file", answer)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        while await asyncio.to_thread(pipe.recv):
            pipe.send(sent)

    asyncio.run(main())


def measure(scheme: str, port: int, pipe: Connection, steps: int, *, hedge: bool) -> dict[str, Any]:
    from streamplug.plugin import open_storage

    storage = open_storage(f"{scheme}://127.0.0.1:{port}", {"hedge": hedge})
    draws = np.random.default_rng(0)
    pipe.send(True)
    before, asked, seconds = pipe.recv(), 0, []
    for number in range(-WARM, steps):
        starts = draws.integers(0, FILE_BYTES - LARGEST, RANGES).tolist()
        sizes = draws.integers(SMALLEST, LARGEST, RANGES).tolist()
        asked += sum(sizes)
        begun = time.perf_counter()
        parts = storage.read_many([("file", at, at + size) for at, size in zip(starts, sizes)])
        if number >= 0:
            seconds.append(time.perf_counter() - begun)
        if list(map(len, parts)) != sizes:
            raise SystemExit("the parts have other sizes")
    time.sleep(STALL_SECONDS + 1)  # what was not cancelled is sent
    pipe.send(True)
    sent = pipe.recv() - before
    storage.close()
    median, late = np.quantile(seconds, [0.5, 0.99]).tolist()
    return {"median_ms": median * 1e3, "p99_ms": late * 1e3, "extra": sent / asked - 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    port, found = here.recv(), {}
    for scheme in STORAGES:
        for hedge in (False, True):
            row = measure(scheme, port, here, arguments.steps, hedge=hedge)
            found[f"{scheme}, {'with' if hedge else 'without'} hedging"] = row
    print(f"{'':32}{'median ms':>10}{'p99 ms':>10}{'extra':>8}")
    for name, row in found.items():
        print(f"{name:32}{row['median_ms']:10.1f}{row['p99_ms']:10.1f}{row['extra']:8.2%}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    server.terminate()


if __name__ == "__main__":
    main()
