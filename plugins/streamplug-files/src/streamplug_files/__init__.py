"""Data without an index.json: lists and patterns of files, scans, and indexes of other libraries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_files.arrow import ValueSizes, maps_as_dicts, to_python, value_sizes
    from streamplug_files.format import (
        FileListFormat,
        FilesFormat,
        IndexImportFormat,
        MultiFileFormat,
        ScannableFormat,
    )
    from streamplug_files.glob import compile_glob, expand_braces, glob_prefix, parse_locations
    from streamplug_files.listing import file_suffixes_of, is_data_file, split_compression
    from streamplug_files.manifest import MANIFEST_ROLE, ShardManifest
    from streamplug_files.scan_cache import ScanCache
    from streamplug_files.scan_source import (
        DatasetFiles,
        FileListEntry,
        FileSelection,
        ScanResult,
        ScanSource,
    )
    from streamplug_files.source import FilesSource
    from streamplug_files.writer_output import PLAN_NAME, check_writer_output

_MODULES = (
    "arrow",
    "format",
    "glob",
    "listing",
    "manifest",
    "scan_cache",
    "source",
    "writer_output",
)

__all__ = [
    "MANIFEST_ROLE",
    "PLAN_NAME",
    "DatasetFiles",
    "FileListEntry",
    "FileListFormat",
    "FileSelection",
    "FilesFormat",
    "FilesSource",
    "IndexImportFormat",
    "MultiFileFormat",
    "ScanCache",
    "ScanResult",
    "ScanSource",
    "ScannableFormat",
    "ShardManifest",
    "ValueSizes",
    "check_writer_output",
    "compile_glob",
    "expand_braces",
    "file_suffixes_of",
    "glob_prefix",
    "is_data_file",
    "maps_as_dicts",
    "parse_locations",
    "split_compression",
    "to_python",
    "value_sizes",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily, as the discovery of plugins imports this package.
        for module in _MODULES if name in __all__ else ():
            if hasattr(home := import_module(f"{__name__}.{module}"), name):
                return getattr(home, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
