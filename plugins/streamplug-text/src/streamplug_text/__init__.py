"""Shards of text (JSON lines, CSV, TSV and other separators) for streamplug.

The writers are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_text.writers import CSVWriter as CSVWriter
    from streamplug_text.writers import JSONLWriter as JSONLWriter
    from streamplug_text.writers import JSONWriter as JSONWriter
    from streamplug_text.writers import TSVWriter as TSVWriter
    from streamplug_text.writers import XSVWriter as XSVWriter
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "writers": "CSVWriter JSONLWriter JSONWriter TSVWriter XSVWriter",
        },
    )
