"""Options of downloads and of the local cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamplug.transfer.timeout import DOWNLOAD_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Options of downloads and of the local cache.

    Attributes:
        retries: Number of retries of a failed request.
        timeout: Stall timeout in seconds.
        validate_hash: Digest to verify, once per process also for cached files; None verifies downloads
            only, by the fastest digest in the index.
        keep_zip: Whether to keep compressed files beside the raw ones.
        cache_limit: Quota in bytes with LRU eviction; None is unlimited.
        root: Directory that the quota applies to, a parent of the shards'; None if it is the same.
    """

    retries: int = 2
    timeout: float = DOWNLOAD_TIMEOUT_SECONDS
    validate_hash: str | None = None
    keep_zip: bool = False
    cache_limit: int | None = None
    root: Path | None = None
