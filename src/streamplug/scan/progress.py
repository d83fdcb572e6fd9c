"""Progress bar of a scan."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

_MAX_SILENT_FILES = 2


class ScanProgress:
    """A progress bar on a terminal, displayed if more than a few files are scanned."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def update(self, done: int, total: int) -> None:
        """Set the number of scanned files."""
        if self._bar is None:
            if total - done <= _MAX_SILENT_FILES or not sys.stderr.isatty():
                return
            self._start(total)
        self._bar.update(self._task, completed=done)

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(f"scanning {self._title}", total=total)
        self._bar.start()

    def __enter__(self) -> ScanProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
