"""Bytes from far to near: downloads, checks and decompresses shards into a local directory."""

from streamplug.fetch.prefetch import prefetched
from streamplug.fetch.store import FetchOptions, ShardStore

__all__ = ["FetchOptions", "ShardStore", "prefetched"]
