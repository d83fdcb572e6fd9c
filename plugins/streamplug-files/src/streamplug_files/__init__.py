"""Data without an index.json: lists and patterns of files, scans, and indexes of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_files.arrow import ValueSizes as ValueSizes
    from streamplug_files.arrow import maps_as_dicts as maps_as_dicts
    from streamplug_files.arrow import to_python as to_python
    from streamplug_files.arrow import value_sizes as value_sizes
    from streamplug_files.format import FileListFormat as FileListFormat
    from streamplug_files.format import FilesFormat as FilesFormat
    from streamplug_files.format import IndexImportFormat as IndexImportFormat
    from streamplug_files.format import MultiFileFormat as MultiFileFormat
    from streamplug_files.format import ScannableFormat as ScannableFormat
    from streamplug_files.glob import compile_glob as compile_glob
    from streamplug_files.glob import expand_braces as expand_braces
    from streamplug_files.glob import glob_prefix as glob_prefix
    from streamplug_files.listing import file_suffixes_of as file_suffixes_of
    from streamplug_files.listing import find_locations as find_locations
    from streamplug_files.listing import split_compression as split_compression
    from streamplug_files.manifest import MANIFEST_ROLE as MANIFEST_ROLE
    from streamplug_files.manifest import ShardManifest as ShardManifest
    from streamplug_files.progress_bar import ProgressBar as ProgressBar
    from streamplug_files.scan_cache import ScanCache as ScanCache
    from streamplug_files.scan_source import DatasetFiles as DatasetFiles
    from streamplug_files.scan_source import FileListEntry as FileListEntry
    from streamplug_files.scan_source import FileSelection as FileSelection
    from streamplug_files.scan_source import ScanResult as ScanResult
    from streamplug_files.scan_source import ScanSource as ScanSource
    from streamplug_files.source import FilesSource as FilesSource
    from streamplug_files.table_check import find_table as find_table
    from streamplug_files.writer_output import PLAN_NAME as PLAN_NAME
    from streamplug_files.writer_output import check_writer_output as check_writer_output
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "arrow": "ValueSizes maps_as_dicts to_python value_sizes",
            "format": "FileListFormat FilesFormat IndexImportFormat MultiFileFormat ScannableFormat",
            "glob": "compile_glob expand_braces glob_prefix",
            "listing": "file_suffixes_of find_locations split_compression",
            "manifest": "MANIFEST_ROLE ShardManifest",
            "progress_bar": "ProgressBar",
            "scan_cache": "ScanCache",
            "scan_source": "DatasetFiles FileListEntry FileSelection ScanResult ScanSource",
            "source": "FilesSource",
            "table_check": "find_table",
            "writer_output": "PLAN_NAME check_writer_output",
        },
    )
