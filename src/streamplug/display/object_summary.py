"""Summaries of objects as tables in notebooks and on rich consoles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

_MAX_ROWS = 20
_MAX_CELL_CHARACTERS = 200
_STYLE = "text-align: left; vertical-align: top; padding-right: 1em"


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """Summary of an object: pairs of labels and values, and a table of its first parts."""

    name: str
    facts: Sequence[tuple[str, str]]
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def left_out(self) -> str:
        """Number of parts that are not shown, in words; empty if none."""
        rest = len(self.rows) - _MAX_ROWS
        return f"{rest:,} more" if rest > 0 else ""


class SummaryRepr(ABC):
    """Base of objects with a summary in notebooks and on rich consoles."""

    @abstractmethod
    def object_summary(self) -> ObjectSummary:
        """Return the summary of this object."""

    def _repr_html_(self) -> str:
        summary = self.object_summary()
        facts = "".join(_html_row(fact[:1], fact[1:]) for fact in summary.facts)
        parts = ""
        if summary.rows:
            rows = "".join(_html_row((), row) for row in summary.rows[:_MAX_ROWS])
            heads = _html_row(summary.heads, ())
            parts = f"<table><thead>{heads}</thead><tbody>{rows}</tbody></table>{summary.left_out}"
        name = _html_text(summary.name)
        return f'<div class="streamplug"><b>{name}</b><table>{facts}</table>{parts}</div>'

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from streamplug.display.tables import pairs_table, rows_table

        summary = self.object_summary()
        shown: list[RenderableType] = [Text(summary.name, "bold"), pairs_table(summary.facts)]
        if summary.rows:
            parts = rows_table(summary.heads, summary.rows[:_MAX_ROWS])
            shown += [parts, Text(summary.left_out)]
        return Group(*shown)


def _html_row(heads: Sequence[str], cells: Sequence[str]) -> str:
    """Return a table row of heads, then cells."""
    columns = [f'<th style="{_STYLE}">{_html_text(head)}</th>' for head in heads]
    for cell in cells:
        text = cell
        if len(cell) > _MAX_CELL_CHARACTERS:
            text = f"{cell[: _MAX_CELL_CHARACTERS - 1]}…"
        columns.append(f'<td style="{_STYLE}; overflow-wrap: anywhere">{_html_text(text)}</td>')
    return f"<tr>{''.join(columns)}</tr>"


def _html_text(text: str) -> str:
    # A str may contain a lone surrogate, which cannot be encoded.
    return escape(text.encode("utf-8", "backslashreplace").decode())
