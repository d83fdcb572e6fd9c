"""Views of data sets: rows and columns of shards that stay where they are, in versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_views.compaction import compact as compact
    from streamplug_views.errors import ConflictError as ConflictError
    from streamplug_views.history import Change as Change
    from streamplug_views.history import Version as Version
    from streamplug_views.history import diff as diff
    from streamplug_views.history import expire as expire
    from streamplug_views.history import log as log
    from streamplug_views.history import show as show
    from streamplug_views.history import tag as tag
    from streamplug_views.view import Commit as Commit
    from streamplug_views.view import View as View
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "compaction": "compact",
            "errors": "ConflictError",
            "history": "Change Version diff expire log show tag",
            "view": "Commit View",
        },
    )
