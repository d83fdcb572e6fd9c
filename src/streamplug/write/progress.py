"""Progress line of a writer."""

from __future__ import annotations

from typing import Any


class WriteProgress:
    """Line with the numbers of samples, shards and bytes so far, if `enabled`."""

    def __init__(self, *, enabled: bool, title: str) -> None:
        self._progress: Any = None
        if enabled:
            from rich import progress

            from streamplug.display import TitleColumn, make_progress

            counts = "{task.fields[samples]:,} samples, {task.fields[shards]:,} shards"
            self._progress = make_progress(
                progress.SpinnerColumn(),
                TitleColumn(),
                progress.TextColumn(counts),
                progress.FileSizeColumn(),
                progress.TransferSpeedColumn(),
                progress.TimeElapsedColumn(),
            )
            self._task = self._progress.add_task(title, total=None, samples=0, shards=0)
            self._progress.start()

    def update(self, *, samples: int, shards: int, num_bytes: int) -> None:
        """Update the numbers."""
        if self._progress is not None:
            self._progress.update(self._task, samples=samples, shards=shards, completed=num_bytes)

    def close(self) -> None:
        """Stop updating the line."""
        if self._progress is not None:
            self._progress.stop()
