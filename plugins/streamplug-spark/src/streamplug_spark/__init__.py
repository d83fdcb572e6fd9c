"""Writing of data sets on Spark clusters for streamplug, also from DataFrames.

The functions are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_spark.frames import dataframe_to_mds, write_dataframe

__all__ = ["dataframe_to_mds", "write_dataframe"]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_spark' has no attribute {name!r}")
        from streamplug_spark import frames

        return getattr(frames, name)
