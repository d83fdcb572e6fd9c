"""Progress bar of work on many items."""

from __future__ import annotations

from typing import Any

from streamplug.display import interactive

_MAX_SILENT_ITEMS = 2


class ProgressBar:
    """A progress bar in a terminal or a notebook, displayed if more than a few items are left."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def update(self, done: int, total: int) -> None:
        """Set the number of items that are done."""
        if self._bar is None:
            if total - done <= _MAX_SILENT_ITEMS or not interactive():
                return
            self._start(total)
        self._bar.update(self._task, completed=done)

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn

        from streamplug.display import TitleColumn, make_progress

        columns = (TitleColumn(), BarColumn(), MofNCompleteColumn())
        self._bar = make_progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(self._title, total=total)
        self._bar.start()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
