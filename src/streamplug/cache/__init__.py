"""The local cache of shards: admission, quota, eviction, staging and scan files, identity, offline copies."""

from streamplug.cache.identity import INDEX_STALL_SECONDS, claim_directory
from streamplug.cache.offline import describe_copy, read_local_copy, warn_offline
from streamplug.cache.quota import EXTRA_EVICTION_DIVISOR
from streamplug.cache.scan_files import SCAN_INDEX_SUFFIX, read_scan_file
from streamplug.cache.staging import stage_cache_file
from streamplug.cache.store import (
    CacheOptions,
    ShardStore,
    cached_files,
    close_evicted_callbacks,
    parse_cache_limit,
)
from streamplug.cache.user_cache import default_cache_dir, source_cache_dir

__all__ = [
    "EXTRA_EVICTION_DIVISOR",
    "INDEX_STALL_SECONDS",
    "SCAN_INDEX_SUFFIX",
    "CacheOptions",
    "ShardStore",
    "cached_files",
    "claim_directory",
    "close_evicted_callbacks",
    "default_cache_dir",
    "describe_copy",
    "parse_cache_limit",
    "read_local_copy",
    "read_scan_file",
    "source_cache_dir",
    "stage_cache_file",
    "warn_offline",
]
