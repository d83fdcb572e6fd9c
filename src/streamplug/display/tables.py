"""Tables in a terminal, wider if the output is piped."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from streamplug.display.terminal import visible

_PIPED_COLUMNS = 200


class _PipedConsole(Console):
    """Console that leaves a closed pipe, as of ``| head``, to its caller."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def make_console(piped_columns: int = _PIPED_COLUMNS) -> Console:
    """Return a console as wide as the terminal, or `piped_columns` wide if output is piped."""
    console = Console()
    return console if console.is_terminal else _PipedConsole(width=piped_columns)


def pairs_table(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values without a heading."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for pair in pairs:
        table.add_row(*(Text(visible(text)) for text in pair))
    return table


def rows_table(
    headings: Iterable[str],
    rows: Iterable[Sequence[RenderableType]],
    justify: Literal["left", "right"] = "left",
) -> Table:
    """Return a table with headings; str cells are not parsed as markup."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(Text(visible(heading)), justify=justify)
    for row in rows:
        table.add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in row))
    return table
