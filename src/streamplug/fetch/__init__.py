"""Bytes from far to near: downloads, checks and decompresses shards into a local directory."""

from streamplug.fetch.indexes import open_index, read_index
from streamplug.fetch.limit import limit_bytes
from streamplug.fetch.makers import made_ahead
from streamplug.fetch.observe import Observer
from streamplug.fetch.patient import patient
from streamplug.fetch.prefetch import Limits, Needs, prefetched
from streamplug.fetch.ranged import RangeStore
from streamplug.fetch.store import DOWNLOAD_TIMEOUT, FetchOptions, ShardStore

__all__ = [
    "DOWNLOAD_TIMEOUT",
    "FetchOptions",
    "Limits",
    "Needs",
    "Observer",
    "RangeStore",
    "ShardStore",
    "limit_bytes",
    "made_ahead",
    "open_index",
    "patient",
    "prefetched",
    "read_index",
]
