"""Reading of samples by range requests, without downloading whole shards."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_ranges.header_sizes import read_header_sizes
    from streamplug_ranges.range_reader import RangeReader
    from streamplug_ranges.range_shards import RangeShards

_HOME = {
    "RangeReader": "range_reader",
    "RangeShards": "range_shards",
    "read_header_sizes": "header_sizes",
}
"""Module of each public name."""

__all__ = ["RangeReader", "RangeShards", "read_header_sizes"]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily: plugin discovery imports this package.
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
