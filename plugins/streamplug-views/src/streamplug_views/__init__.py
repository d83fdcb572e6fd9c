"""Views of data sets: rows and columns of shards that stay where they are, in versions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOME = {
    "Change": "history",
    "Commit": "view",
    "ConflictError": "errors",
    "Version": "history",
    "View": "view",
    "compact": "compaction",
    "diff": "history",
    "expire": "history",
    "log": "history",
    "show": "history",
    "tag": "history",
}
"""Module of each public name."""

__all__ = [
    "Change",
    "Commit",
    "ConflictError",
    "Version",
    "View",
    "compact",
    "diff",
    "expire",
    "log",
    "show",
    "tag",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily: plugin discovery imports this package.
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
