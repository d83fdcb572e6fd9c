"""Shards of text (JSON lines, CSV, TSV and other separators) for streamplug.

The writers are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_text.writers import CSVWriter, JSONLWriter, JSONWriter, TSVWriter, XSVWriter

__all__ = ["CSVWriter", "JSONLWriter", "JSONWriter", "TSVWriter", "XSVWriter"]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_text' has no attribute {name!r}")
        from streamplug_text import writers

        return getattr(writers, name)
