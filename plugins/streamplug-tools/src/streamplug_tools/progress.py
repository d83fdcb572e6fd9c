"""Progress bars of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from streamplug.display import TitleColumn, interactive, make_progress
from streamplug_tools.options import JobProgress, ProgressCallback, ignore_progress


@contextmanager
def progress_bars() -> Iterator[ProgressCallback]:
    """Show the progress of the jobs in a block in a notebook, or on standard error if it is a terminal.

    Yields:
        The argument `on_progress` of jobs. A bar appears for each task.
    """
    if not interactive():  # some releases of rich write an empty line even if the bars are disabled
        yield ignore_progress
        return
    with make_progress(
        TitleColumn(),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        _CountsColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        tasks: dict[str, TaskID] = {}
        latest: dict[str, int] = {}

        def on_progress(progress: JobProgress) -> None:
            # Rates leave out what was there before, such as the parts of a job that is resumed.
            fields: dict[str, Any] = {"unit": progress.unit, "num_bytes": 0, "first": progress.done}
            if progress.task not in tasks:
                tasks[progress.task] = bars.add_task(progress.task, total=progress.total, **fields)
            elif progress.done < latest[progress.task]:  # it begins again, as for the next data set
                bars.reset(tasks[progress.task], **fields)
            latest[progress.task] = progress.done
            bars.update(
                tasks[progress.task],
                completed=progress.done,
                total=progress.total,
                num_bytes=progress.num_bytes,
            )

        yield on_progress
        for task in bars.tasks:  # a job need not report its end
            bars.update(task.id, completed=task.total)


class _CountsColumn(ProgressColumn):
    """Amounts with their rates, such as ``7,400 samples, 1,230/s; 37.1 MB, 6.2 MB/s``."""

    def render(self, task: Task) -> Text:
        seconds = task.elapsed or 0.0
        counts = [
            (
                f"{task.completed:,.0f} {task.fields['unit']}",
                f"{_rate(task.completed - task.fields['first'], seconds):,.0f}/s",
            )
        ]
        if num_bytes := task.fields["num_bytes"]:
            counts.append((decimal(num_bytes), f"{decimal(int(_rate(num_bytes, seconds)))}/s"))
        return Text("; ".join(f"{amount}, {rate}" for amount, rate in counts))


def _rate(amount: float, seconds: float) -> float:
    # The amount falls when a part is written again, such as one whose process died.
    return max(amount, 0.0) / seconds if seconds > 0 else 0.0
