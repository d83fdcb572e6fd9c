"""Summaries of objects as tables in notebooks and on rich consoles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamplug.display.html import Html, element, html

if TYPE_CHECKING:
    from rich.console import RenderableType

_ROWS = 20
_CELL = 200


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
        rest = len(self.rows) - _ROWS
        return f"{rest:,} more" if rest > 0 else ""


class SummaryRepr(ABC):
    """Base of objects with a summary in notebooks and on rich consoles."""

    @abstractmethod
    def object_summary(self) -> ObjectSummary:
        """Return the summary of this object."""

    def _repr_html_(self) -> str:
        told = self.object_summary()
        facts = [
            element("tr", element("th", fact, scope="row", style=_LEFT), _cell(value))
            for fact, value in told.facts
        ]
        return element(
            "div",
            element("b", told.name),
            element("table", *facts),
            _parts(told),
            class_="streamplug",
        )

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        told = self.object_summary()
        facts = Table(show_header=False, box=None, pad_edge=False)
        for pair in told.facts:
            facts.add_row(*map(Text, pair))
        shown: list[RenderableType] = [Text(told.name, "bold"), facts]
        if told.rows:
            parts = Table(box=None, pad_edge=False)
            for head in told.heads:
                parts.add_column(Text(head))
            for row in told.rows[:_ROWS]:
                parts.add_row(*map(Text, row))
            shown += [parts, Text(told.left_out)]
        return Group(*shown)


_LEFT = "text-align: left; vertical-align: top"


def _cell(value: str) -> Html:
    text = value if len(value) <= _CELL else f"{value[: _CELL - 1]}…"
    return element("td", text, style=f"{_LEFT}; overflow-wrap: anywhere")


def _parts(told: ObjectSummary) -> Html:
    if not told.rows:
        return html()
    heads = (element("th", head, style=_LEFT) for head in told.heads)
    rows = (element("tr", *map(_cell, row)) for row in told.rows[:_ROWS])
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return html(table, element("p", told.left_out) if told.left_out else "")
