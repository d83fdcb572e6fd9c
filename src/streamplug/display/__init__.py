"""Display of data sets and progress in notebooks and terminals."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug.display.dataset_summary import DatasetRepr as DatasetRepr
    from streamplug.display.dataset_summary import LoaderRepr as LoaderRepr
    from streamplug.display.object_summary import ObjectSummary as ObjectSummary
    from streamplug.display.object_summary import SummaryRepr as SummaryRepr
    from streamplug.display.progress import FetchProgress as FetchProgress
    from streamplug.display.progress import interactive as interactive
    from streamplug.display.progress_bar import ProgressBar as ProgressBar
    from streamplug.display.progress_lines import TitleColumn as TitleColumn
    from streamplug.display.progress_lines import make_progress as make_progress
    from streamplug.display.tables import make_console as make_console
    from streamplug.display.tables import pairs_table as pairs_table
    from streamplug.display.tables import rows_table as rows_table
    from streamplug.display.terminal import say as say
    from streamplug.display.terminal import visible as visible
    from streamplug.display.terminal import visible_json as visible_json

_HOME = {
    "DatasetRepr": "dataset_summary",
    "FetchProgress": "progress",
    "LoaderRepr": "dataset_summary",
    "ObjectSummary": "object_summary",
    "ProgressBar": "progress_bar",
    "SummaryRepr": "object_summary",
    "TitleColumn": "progress_lines",
    "interactive": "progress",
    "make_console": "tables",
    "make_progress": "progress_lines",
    "pairs_table": "tables",
    "rows_table": "tables",
    "say": "terminal",
    "visible": "terminal",
    "visible_json": "terminal",
}
"""Module of each public name."""

__all__ = list(_HOME)

if not TYPE_CHECKING:  # else type checkers would accept any attribute

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
