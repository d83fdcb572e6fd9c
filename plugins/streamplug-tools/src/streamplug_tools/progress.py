"""Progress bars of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import TaskID

from streamplug.display.notebook import in_notebook
from streamplug.display.progress_lines import make_progress
from streamplug_tools.options import ProgressCallback


@contextmanager
def progress_bars() -> Iterator[ProgressCallback]:
    """Show the progress of the jobs in a block in a notebook, or on standard error if it is a terminal.

    Yields:
        The argument `on_progress` of jobs. A bar appears for each task.
    """
    console = Console(stderr=True)
    is_hidden = not (console.is_terminal or in_notebook())
    with make_progress(console=console, transient=True, disable=is_hidden) as progress:
        tasks: dict[str, TaskID] = {}

        def on_progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield on_progress
        for task in progress.tasks:  # a job need not report its end
            progress.update(task.id, completed=task.total)
