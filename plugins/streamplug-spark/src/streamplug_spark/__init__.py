"""Writing of data sets on Spark clusters for streamplug, also from DataFrames.

The functions are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_spark.frames import dataframe_to_mds as dataframe_to_mds
    from streamplug_spark.frames import write_dataframe as write_dataframe
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "frames": "dataframe_to_mds write_dataframe",
        },
    )
