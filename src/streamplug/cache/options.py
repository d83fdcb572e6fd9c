"""Settings of downloads and of the local cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamplug.transfer.timeout import DOWNLOAD_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How files come from a remote, and how many of them stay.

    Attributes:
        retries: How often a failed download is tried again.
        timeout: Seconds after which a download fails during which nothing arrived.
        validate_hash: Which digest to check, also of files that were in the cache already, once in a
            process. None for a fast one of those that the index has, of what is downloaded.
        keep_zip: Whether compressed files stay in the cache beside the raw ones.
        cache_limit: Bytes that shards may take in the cache; None for any number.
        root: The directory that the limit is for, which has that of the shards inside; None if they
            are the same.
    """

    retries: int = 2
    timeout: float = DOWNLOAD_TIMEOUT_SECONDS
    validate_hash: str | None = None
    keep_zip: bool = False
    cache_limit: int | None = None
    root: Path | None = None
