"""Parquet files for streamplug: reading existing files and writing shards.

`FileDirectory` reads files that columns name by their paths, `NumberArrays` lists of numbers as arrays. They
are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_parquet.file_directory import FileDirectory as FileDirectory
    from streamplug_parquet.number_arrays import NumberArrays as NumberArrays
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "file_directory": "FileDirectory",
            "number_arrays": "NumberArrays",
        },
    )
