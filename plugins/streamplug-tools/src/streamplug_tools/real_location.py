"""Where data sets are, so that two names of one place are told from two places."""

from __future__ import annotations

from dataclasses import dataclass

from streamplug.plugin import local_path


@dataclass(frozen=True)
class RealLocation:
    """A location at an endpoint.

    Attributes:
        endpoint: URL of the server; None if it is not known.
        url: URL or resolved path, with a trailing slash.
    """

    endpoint: str | None
    url: str

    @classmethod
    def of(cls, endpoint: str, url: str) -> RealLocation:
        """Return the location that a storage of this endpoint and URL has."""
        chain, _, inner = url.rpartition("::")  # such as simplecache::file:///data
        path = local_path(inner)
        resolved = f"{inner if path is None else path.resolve()}".rstrip("/") + "/"
        # A chain tells no endpoint of the storage that it reads from.
        return cls(None if chain else endpoint.rstrip("/"), resolved)

    def is_same(self, other: RealLocation) -> bool:
        """Return whether this is, or may be, another one."""
        return self.url == other.url and self._may_share_endpoint(other)

    def contains(self, other: RealLocation) -> bool:
        """Return whether this is, or may be, another one or a directory above it."""
        return other.url.startswith(self.url) and self._may_share_endpoint(other)

    def _may_share_endpoint(self, other: RealLocation) -> bool:
        return None in (self.endpoint, other.endpoint) or self.endpoint == other.endpoint
