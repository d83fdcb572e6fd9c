"""Parquet files for streamplug: reading existing files and writing shards.

`FileDirectory` reads files that columns name by their paths. It is imported on first use, to keep plugin
discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_parquet.file_directory import FileDirectory

__all__ = ["FileDirectory"]

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_parquet' has no attribute {name!r}")
        from streamplug_parquet.file_directory import FileDirectory

        return FileDirectory
