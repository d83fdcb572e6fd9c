"""The progress of downloads, as its callback tells it to a terminal or a notebook."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from streamplug.interfaces import Stats

_POLL_SECONDS = 0.25
_STOP_TIMEOUT_SECONDS = 5.0


def notebook_shell() -> Any:
    """Return the shell of IPython if this process is the kernel of a notebook, or None."""
    # A kernel has imported IPython. A shell of IPython in a terminal has no kernel.
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_shell() if get_shell is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def interactive() -> bool:
    """Return whether progress can be shown, in a terminal or a notebook."""
    if notebook_shell() is not None:
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is missing or closed
        return False


class FetchProgress:
    """Progress line of downloads since its creation, shown from the first download on.

    A thread polls `stats`, so that it does not slow down downloads.
    """

    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats
        self._first = stats()
        self._shown: Any = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamplug-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop updating the line."""
        self._done.set()
        self._thread.join(_STOP_TIMEOUT_SECONDS)

    def _run(self) -> None:
        # A terminal that disappears must not stop anything else.
        with suppress(OSError, ValueError):
            try:
                while not self._done.wait(_POLL_SECONDS):
                    self._show()
                self._show()
            finally:
                if self._shown is not None:
                    self._shown.stop()

    def _show(self) -> None:
        now, first = self._stats(), self._first
        size = now.downloaded_bytes + now.range_bytes
        size -= first.downloaded_bytes + first.range_bytes
        if not size:
            return
        if self._shown is None:
            self._shown, self._task = _line()
        files = now.downloads - first.downloads
        cached = now.cache_hits - first.cache_hits
        self._shown.update(self._task, completed=size, files=files, cached=cached, refresh=True)


def _line() -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import (
        FileSizeColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    from streamplug.display.progress_lines import make_progress

    progress = make_progress(
        SpinnerColumn(),
        TextColumn("downloading"),
        TextColumn("{task.fields[files]:,} files ({task.fields[cached]:,} cached)"),
        FileSizeColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = progress.add_task("", total=None, files=0, cached=0)
    progress.start()
    return progress, task
