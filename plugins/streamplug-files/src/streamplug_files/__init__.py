"""Data without an index.json: lists and patterns of files, scans, and indexes of other libraries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOME = {
    "MANIFEST_ROLE": "manifest",
    "PLAN_NAME": "writer_output",
    "DatasetFiles": "scan_source",
    "FileListEntry": "scan_source",
    "FileListFormat": "format",
    "FileSelection": "scan_source",
    "FilesFormat": "format",
    "FilesSource": "source",
    "IndexImportFormat": "format",
    "MultiFileFormat": "format",
    "ScanCache": "scan_cache",
    "ScanResult": "scan_source",
    "ScanSource": "scan_source",
    "ScannableFormat": "format",
    "ShardManifest": "manifest",
    "check_writer_output": "writer_output",
    "compile_glob": "glob",
    "expand_braces": "glob",
    "file_suffixes_of": "listing",
    "glob_prefix": "glob",
    "is_data_file": "listing",
    "parse_locations": "glob",
    "split_compression": "listing",
}

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
    "check_writer_output",
    "compile_glob",
    "expand_braces",
    "file_suffixes_of",
    "glob_prefix",
    "is_data_file",
    "parse_locations",
    "split_compression",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily, as the discovery of plugins imports this package.
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
