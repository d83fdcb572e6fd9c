"""Shows how a writer is getting on."""

from __future__ import annotations

from typing import Any


class WriteProgress:
    """A line with samples, shards and bytes so far; nothing at all if it is not wanted."""

    def __init__(self, *, shown: bool, title: str) -> None:
        """Start the line if `shown`."""
        self._progress: Any = None
        if shown:
            from rich.progress import (
                DownloadColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TextColumn("{task.fields[samples]:,} samples, {task.fields[shards]:,} shards"),
                DownloadColumn(binary_units=True),
                TimeElapsedColumn(),
            )
            self._task = self._progress.add_task(title, total=None, samples=0, shards=0)
            self._progress.start()

    def update(self, *, samples: int, shards: int, written: int) -> None:
        """Show new figures; `written` is in bytes."""
        if self._progress is not None:
            self._progress.update(self._task, samples=samples, shards=shards, completed=written)

    def close(self) -> None:
        """Leave the line as it stands."""
        if self._progress is not None:
            self._progress.stop()
