"""Options of downloads and of the local cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamplug.transfer import DOWNLOAD_TIMEOUT_SECONDS, max_pause_seconds


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Options of downloads and of the local cache."""

    retries: int = 2
    timeout: float = DOWNLOAD_TIMEOUT_SECONDS  # stall timeout
    # Verified once per process for cached files, too; None verifies downloads by the fastest digest.
    validate_hash: str | None = None
    keep_zip: bool = False  # whether to keep compressed files beside the raw ones
    cache_limit: int | None = None  # quota in bytes with LRU eviction; None is unlimited
    root: Path | None = None  # directory of the quota, a parent of the shards'; None if the same

    @property
    def stall_seconds(self) -> float:
        """Seconds for which a process may wait for its server, or before its next attempt."""
        return self.timeout + max_pause_seconds(self.retries)
