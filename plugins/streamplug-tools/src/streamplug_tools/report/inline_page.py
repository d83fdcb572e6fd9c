"""HTML page that a notebook shows inside a cell."""

from __future__ import annotations

from streamplug_tools.report.html import element

_FRAME_STYLE = (
    "width: 100%; height: 40rem; box-sizing: border-box; border: 1px solid #8886; resize: vertical"
)


class InlinePage(str):
    """Text of an HTML page; a notebook shows the page.

    The page is in a frame: its styles and its script cannot reach the notebook, and those of the notebook
    cannot reach the page.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} characters>"

    def _repr_html_(self) -> str:
        return element(
            "iframe",
            srcdoc=str(self),
            sandbox="allow-scripts",
            title="Page about a data set",
            style=_FRAME_STYLE,
        )
