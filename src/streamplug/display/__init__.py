"""Display of data sets and progress in notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug.display.object_summary import ObjectSummary as ObjectSummary
    from streamplug.display.object_summary import SummaryRepr as SummaryRepr
    from streamplug.display.progress import FetchProgress as FetchProgress
    from streamplug.display.progress import interactive as interactive
    from streamplug.display.progress_lines import TitleColumn as TitleColumn
    from streamplug.display.progress_lines import make_progress as make_progress
    from streamplug.display.tables import make_console as make_console
    from streamplug.display.tables import pairs_table as pairs_table
    from streamplug.display.tables import rows_table as rows_table
    from streamplug.display.terminal import say as say
    from streamplug.display.terminal import visible as visible
    from streamplug.display.terminal import visible_json as visible_json
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "object_summary": "ObjectSummary SummaryRepr",
            "progress": "FetchProgress interactive",
            "progress_lines": "TitleColumn make_progress",
            "tables": "make_console pairs_table rows_table",
            "terminal": "say visible visible_json",
        },
    )
