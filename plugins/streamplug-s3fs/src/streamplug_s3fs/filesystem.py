"""s3fs file system that passes an object on while it arrives."""

from __future__ import annotations

from typing import Any

from s3fs import S3FileSystem
from s3fs.core import S3_RETRYABLE_ERRORS

from streamplug.plugin_kit.body import receive_body
from streamplug.plugin_kit.event_loop import IncomingFile

_READ_BYTES = 1 << 18
"""Bytes per read of a download; with the 64 KiB of s3fs, downloads take a sixth longer."""


class StreamingFileSystem(S3FileSystem):  # type: ignore[misc]  # s3fs has no types
    """s3fs with downloads that store while they receive; `get_file` alternates between both."""

    # botocore retries, too, and s3fs retries each read twice over: with the 5 of s3fs, a server that stalls
    # would be asked 50 times, for a quarter of an hour. streamplug has its own retries.
    retries = 2

    async def stream_object(self, path: str, file: IncomingFile) -> bool:
        """Write an object to a file; return False if it is too large or the connection breaks."""
        bucket, key, _ = self.split_path(path)
        response: dict[str, Any] = await self._call_s3(
            "get_object", Bucket=bucket, Key=key, **self.req_kw
        )
        body = response["Body"]
        try:
            size = response.get("ContentLength", 0)
            if size > self.default_block_size:
                return False
            file.expected = size
            while chunk := await body.read(_READ_BYTES):
                file.write(chunk)
        except S3_RETRYABLE_ERRORS:
            return False
        finally:
            body.close()
        return True

    async def read_part(self, path: str, start: int, end: int) -> bytes:
        """Return a range of an object, and read no more of the response than that."""
        bucket, key, _ = self.split_path(path)
        # HTTP ranges include their end.
        response: dict[str, Any] = await self._call_s3(
            "get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}", **self.req_kw
        )
        body = response["Body"]
        try:
            return await receive_body(body.read, end - start)
        finally:
            body.close()
