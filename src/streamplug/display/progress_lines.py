"""Lines that are drawn again in place, in a terminal or a notebook."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from typing import IO, Any, cast
from uuid import uuid4

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from streamplug.display.progress import notebook_shell
from streamplug.display.terminal import visible

_NOTEBOOK_COLUMNS = 120
_NOTEBOOK_UPDATE_SECONDS = 0.2


def make_progress(
    *columns: ProgressColumn, console: Console | None = None, **options: Any
) -> Progress:
    """Return progress lines: those of rich, or in a notebook `NotebookProgress`.

    A terminal that disappears, or lacks some characters, does not end the work whose progress they show.

    Args:
        columns: Columns of a line; by default those of rich.
        console: Terminal; stdout by default.
        options: More for `rich.progress.Progress`. Like the console, they are not for notebooks.
    """
    if notebook_shell() is not None:
        return NotebookProgress(*columns)
    console = console or Console()
    console.file = cast("IO[str]", _LenientStream(console.file))
    return Progress(*columns, console=console, **options)


class _LenientStream:
    """A text stream that drops what cannot be written, and escapes what it cannot encode."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # ValueError: it is closed
            try:
                self._stream.write(text)
            except UnicodeEncodeError as error:
                escaped = text.encode(error.encoding, "backslashreplace")
                self._stream.write(escaped.decode(error.encoding))

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class TitleColumn(ProgressColumn):
    """Description of a task, which may be a path, as plain text rather than markup."""

    def render(self, task: Task) -> Text:
        """Return the description with control characters as escapes."""
        return Text(visible(task.description))


class NotebookProgress(Progress):
    """Progress lines that are one output of a notebook cell, updated in place.

    The display of rich needs ipywidgets. While it updates a widget, the widget also takes what other threads
    print, and a saved notebook does not have it.
    """

    def __init__(self, *columns: ProgressColumn) -> None:
        # The console only renders: width and absence of colors must not depend on the environment.
        console = Console(
            file=io.StringIO(),
            width=_NOTEBOOK_COLUMNS,
            color_system=None,
            no_color=True,
            force_terminal=False,
            force_jupyter=False,
        )
        super().__init__(*columns, console=console, auto_refresh=False)
        self._display_id = uuid4().hex
        self._is_shown = False
        self._next_update = 0.0
        self._is_running = False

    def start(self) -> None:
        """Show the lines as soon as there are any."""
        self._is_running = True
        self.refresh()

    def update(self, task_id: TaskID, **options: Any) -> None:
        """Update a task, and from time to time its line."""
        super().update(task_id, **options)
        self.refresh()

    def refresh(self) -> None:
        """Show the current state, but not more often than a reader can see."""
        with self._lock:
            now = time.monotonic()
            if self._is_running and self.tasks and now >= self._next_update:
                self._next_update = now + _NOTEBOOK_UPDATE_SECONDS
                self._show(self._render())

    def stop(self) -> None:
        """Show the final state, which stays."""
        with self._lock:
            if self._is_running and self.tasks:
                self._show(self._render())
            self._is_running = False

    def _render(self) -> str:
        with self.console.capture() as capture:
            self.console.print(self.get_renderable())
        return visible("\n".join(line.rstrip() for line in capture.get().splitlines()))

    def _show(self, text: str) -> None:
        transient = {"display_id": self._display_id}
        publisher = notebook_shell().display_pub
        publisher.publish({"text/plain": text}, transient=transient, update=self._is_shown)
        self._is_shown = True
