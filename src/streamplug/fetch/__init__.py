"""Bytes from far to near: downloads, checks and decompresses shards into a local directory."""

from streamplug.fetch.bundled import source_of
from streamplug.fetch.derived import Deriver
from streamplug.fetch.foreign import translation
from streamplug.fetch.indexes import open_index, read_index
from streamplug.fetch.limit import limit_bytes
from streamplug.fetch.listing import is_file
from streamplug.fetch.lists import ListInsteadError
from streamplug.fetch.makers import made_ahead
from streamplug.fetch.observe import Observer
from streamplug.fetch.offline import has_index, open_copy, report_offline, selection_of
from streamplug.fetch.options import DOWNLOAD_TIMEOUT, FetchOptions
from streamplug.fetch.origin import take_into_use
from streamplug.fetch.patient import patient
from streamplug.fetch.patterns import FileSet, file_set
from streamplug.fetch.prefetch import Limits, Needs, Window, prefetched
from streamplug.fetch.probe import PROBE_RETRIES, probed, unavailable
from streamplug.fetch.range_store import RangeStore
from streamplug.fetch.scan_progress import ScanProgress
from streamplug.fetch.store import ShardStore

__all__ = [
    "DOWNLOAD_TIMEOUT",
    "PROBE_RETRIES",
    "Deriver",
    "FetchOptions",
    "FileSet",
    "Limits",
    "ListInsteadError",
    "Needs",
    "Observer",
    "RangeStore",
    "ScanProgress",
    "ShardStore",
    "Window",
    "file_set",
    "has_index",
    "is_file",
    "limit_bytes",
    "made_ahead",
    "open_copy",
    "open_index",
    "patient",
    "prefetched",
    "probed",
    "read_index",
    "report_offline",
    "selection_of",
    "source_of",
    "take_into_use",
    "translation",
    "unavailable",
]
