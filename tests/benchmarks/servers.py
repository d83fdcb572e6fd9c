"""Servers on this machine for the benchmarks: files by HTTP, and a proxy that adds latency."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamplug_testing.http import free_port, serving

_NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
{user}
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000;
  default_type application/octet-stream;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {root}; }}
  server {{ listen 127.0.0.1:{paced}; root {root}; limit_rate {rate}; }}
}}
"""


@contextmanager
def files(root: Path, rate: int) -> Iterator[tuple[str, int, int | None]]:
    """Serve a directory in a process of its own; yields the server's name, its port, and a slower one.

    Whoever asks for s3://bucket/key at this address, path style, gets the file bucket/key. The slower port
    gives each connection so many bytes in a second as `rate` says; without nginx there is none.
    """
    program = shutil.which("nginx")
    if program is None:
        with _process(_serve, str(root)) as port:
            yield "the server of the tests", port, None
        return
    folder, port, paced = Path(tempfile.mkdtemp()), free_port(), free_port()
    user = "user root;" if Path.home() == Path("/root") else ""
    places = {"folder": folder, "root": root, "port": port, "paced": paced}
    (folder / "conf").write_text(_NGINX.format(**places, rate=rate, user=user))
    server = subprocess.Popen(
        [program, "-p", folder, "-c", folder / "conf"], stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        yield "nginx", port, paced
    finally:
        server.terminate()
        server.wait(10)
        shutil.rmtree(folder)


@contextmanager
def distant(port: int, seconds: float) -> Iterator[int]:
    """Put a server further away: all bytes arrive half of `seconds` later, in both directions."""
    with _process(_delay, port, seconds / 2) as new:
        yield new


@contextmanager
def _process(target: Any, *args: Any) -> Iterator[int]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join(10)


def _serve(pipe: Any, root: str) -> None:
    with serving(Path(root)) as server:
        pipe.send(server.server_port)
        time.sleep(1e6)


def _delay(pipe: Any, port: int, seconds: float) -> None:
    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

        async def arrive() -> None:
            while True:
                due, data = await on_its_way.get()
                await asyncio.sleep(max(due - time.perf_counter(), 0))
                if not data:
                    break
                target.write(data)
                await target.drain()
            target.close()

        arriving = asyncio.create_task(arrive())
        try:
            while data := await source.read(1 << 18):
                await on_its_way.put((time.perf_counter() + seconds, data))
            await on_its_way.put((time.perf_counter() + seconds, b""))
            await arriving
        except OSError:
            arriving.cancel()
            target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port, limit=1 << 18)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 18, backlog=256)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def _wait_for(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens at port {port}")
