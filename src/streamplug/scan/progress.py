"""Progress bar of a scan."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

_FEW = 2  # files up to which nothing is displayed


class ScanProgress:
    """A progress bar on a terminal, displayed if more than a few files are scanned."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown: Any = None
        self._lock = threading.Lock()

    def update(self, done: int, total: int) -> None:
        """Set the number of scanned files."""
        with self._lock:
            if self._shown is None:
                if total - done <= _FEW or not sys.stderr.isatty():
                    return
                self._begin(total)
            self._shown.update(self._task, completed=done)

    def _begin(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._shown = Progress(*columns, console=Console(stderr=True))
        self._task = self._shown.add_task(f"looking through {self._title}", total=total)
        self._shown.start()

    def __enter__(self) -> ScanProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown is not None:
            self._shown.stop()
