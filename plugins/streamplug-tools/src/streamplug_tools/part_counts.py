"""Samples and bytes of each part so far, in a file that all processes of a machine share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import numpy as np
from numpy.typing import NDArray

from streamplug.transfer import TemporaryDirectory
from streamplug.types import Int64

_POLL_SECONDS = 0.1
_STOP_TIMEOUT_SECONDS = 5.0


def open_counts(path: str, number: int) -> Int64 | None:
    """Return the writable row (samples, raw bytes) of a part; None on machines without the file."""
    try:
        row: Int64 = np.memmap(path, np.int64, "r+").reshape(-1, 2)[number]
    except (OSError, ValueError):
        return None
    return row


@contextmanager
def watch_counts(
    parts: int, on_counts: Callable[[NDArray[np.int64]], None]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the path and the array of new counts; call `on_counts` with it until the block ends.

    A thread polls the counts, so that workers do not wait for the callback.
    """
    done = Event()
    with TemporaryDirectory() as folder:
        path = Path(folder, "counts")
        counts = np.memmap(path, np.int64, "w+", shape=(parts, 2))

        def poll() -> None:
            while not done.wait(_POLL_SECONDS):
                on_counts(np.array(counts))

        thread = Thread(target=poll, name="streamplug-progress", daemon=True)
        thread.start()
        try:
            yield str(path), counts
        finally:
            done.set()
            thread.join(_STOP_TIMEOUT_SECONDS)
    on_counts(np.array(counts))
