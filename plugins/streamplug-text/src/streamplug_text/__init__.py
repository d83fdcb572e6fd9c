"""Shards of text (JSON lines, CSV, TSV and other separators) for streamplug.

The writers are imported when they are first used, so that looking for plugins stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_text.writers import CSVWriter, JSONLWriter, JSONWriter, TSVWriter, XSVWriter

__all__ = ["CSVWriter", "JSONLWriter", "JSONWriter", "TSVWriter", "XSVWriter"]


if not TYPE_CHECKING:  # else any name would be one of the package

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_text' has no attribute {name!r}")
        from streamplug_text import writers

        return getattr(writers, name)
