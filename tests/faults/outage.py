"""A server that stops while a loader reads from it, and starts again; prints what the run did, as a table.

It takes as long as the server is away, and is run by hand; see docs/concepts/faults.md.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from streamplug_testing.http import FileServer, free_port

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset
from streamplug.errors import Transient

_processes = multiprocessing.get_context("spawn")
SAMPLES, BATCH = 2000, 20
BEFORE = 10  # batches that are read before the server stops


class Server:
    """A file server in a process of its own, which stops and starts at one port."""

    def __init__(self, root: Path) -> None:
        self._root, self._port = root, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Accept connections; return when it does."""
        begun = _processes.Event()
        arguments = (self._root, self._port, begun)
        self._process = _processes.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        begun.wait()

    def stop(self) -> None:
        """End all connections, and refuse new ones from now on."""
        self._process.kill()
        self._process.join()


def _serve(root: Path, port: int, begun: Any) -> None:
    server = FileServer(root, ("127.0.0.1", port))
    begun.set()
    server.serve_forever()


def read(url: str, near: Path, patience: float) -> StreamingDataLoader:
    """Return a loader with two workers over the data set."""
    dataset = StreamingDataset(
        remote=url,
        local=str(near),
        batch_size=BATCH,
        predownload=BATCH,
        download_patience=patience,
    )
    return StreamingDataLoader(dataset, num_workers=2)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--away", type=float, default=20, help="seconds without a server")
    parser.add_argument("--patience", type=float, default=60, help="download_patience in seconds")
    options = parser.parse_args()
    logging.basicConfig(format="%(process)d %(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        far = Path(folder) / "far"
        columns = {"n": "int", "b": "bytes"}
        with MDSWriter(out=far, columns=columns, size_limit=1 << 14) as out:
            for n in range(SAMPLES):
                out.write({"n": n, "b": bytes(800)})
        server = Server(far)
        expected = [batch["n"].tolist() for batch in read(server.url, Path(folder) / "1", 0)]
        loader = read(server.url, Path(folder) / "2", options.patience)
        seen, longest, began = [], 0.0, time.monotonic()
        for batch in loader:
            seen.append(batch["n"].tolist())
            now = time.monotonic()
            longest, began = max(longest, now - began), now
            if len(seen) == BEFORE:
                server.stop()
                threading.Timer(options.away, server.start).start()
        server.stop()
        opened = time.monotonic()
        try:
            read(server.url, Path(folder) / "3", options.patience)
        except Transient as error:
            print(error)
        opened = time.monotonic() - opened
        stats = loader.dataset.stats()
    print("| | |\n|---|---:|")
    print(
        f"| Server away | {options.away:.0f} s |\n| `download_patience` | {options.patience:.0f} s |"
    )
    print(f"| Longest wait for a batch | {longest:.0f} s |\n| Retries | {stats.retries} |")
    print(f"| Samples as without the outage | {'all' if seen == expected else 'NOT'} |")
    print(f"| Error at opening, if it is away | after {opened:.1f} s |")


if __name__ == "__main__":
    main()
