"""Files in Xet, the store of the Hub for large files and for buckets, through `hf_xet`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.errors import StorageError
from streamplug.types import Buffer


@dataclass(frozen=True)
class XetAccess:
    """What a request for a token of Xet returned, and how to ask for the next one.

    Attributes:
        endpoint: URL of the store.
        token: Its token.
        expiry: When the token expires, in seconds since 1970.
        refresh_url: URL of the Hub that returns a token.
        headers: Headers of requests to the Hub.
    """

    endpoint: str
    token: str
    expiry: int
    refresh_url: str
    headers: Mapping[str, str]

    def options(self) -> dict[str, Any]:
        """Return the arguments of the groups of `hf_xet`."""
        return {
            "endpoint": self.endpoint,
            "token": self.token,
            "token_expiry_unix_secs": self.expiry,
            "token_refresh_url": self.refresh_url,
            "token_refresh_headers": dict(self.headers),
        }


def open_session(url: str) -> Any:
    """Return a session of `hf_xet`.

    Raises:
        StorageError: If it is not installed, or too old.
    """
    try:
        from hf_xet import XetSession
    except ImportError:
        raise StorageError(
            f"{url}: Xet needs the package hf_xet from 1.8 on; run: pip install 'hf_xet>=1.8'"
        ) from None
    return XetSession()


def store(session: Any, access: XetAccess, source: Buffer | Path) -> str:
    """Store bytes or a local file; return their hash, by which the Hub takes them into a bucket."""
    from hf_xet import SKIP_SHA256

    with session.new_upload_commit(**access.options()) as commit:
        if isinstance(source, Path):
            upload = commit.start_upload_file(str(source), sha256=SKIP_SHA256)
        else:
            upload = commit.start_upload_bytes(bytes(source), sha256=SKIP_SHA256)
    return str(upload.result().xet_info.hash)


def chunks(session: Any, access: XetAccess, file_hash: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file, given its hash and size in bytes."""
    from hf_xet import XetFileInfo

    group = session.new_download_stream_group(**access.options())
    stream = group.download_stream(XetFileInfo(file_hash, size))
    try:
        yield from stream
    finally:
        stream.cancel()
