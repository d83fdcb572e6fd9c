"""s3fs file system that passes an object on while it arrives."""

from __future__ import annotations

import asyncio
from typing import Any

from s3fs import S3FileSystem
from s3fs.core import S3_RETRYABLE_ERRORS
from streamplug_fsspec import IncomingFile, check_content_range, receive_body

from streamplug.errors import Transient
from streamplug.interfaces import replaced_error

_MAX_PART_BYTES = 8 << 20

_READ_BYTES = 1 << 18
"""Bytes per read of a download; with the 64 KiB of s3fs, downloads take a sixth longer."""


class StreamingFileSystem(S3FileSystem):  # type: ignore[misc]  # s3fs has no types
    """s3fs with downloads that store while they receive; `get_file` alternates between both."""

    # botocore retries, too, and s3fs retries each read twice over: with the 5 of s3fs, a server that stalls
    # would be asked 50 times, for a quarter of an hour. streamplug has its own retries.
    retries = 2

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Return bucket and key, all of which is literal, and that the object is of no certain version."""
        place, mark, rest = path.partition("?versionId=")
        bucket, key, _ = super().split_path(place)
        return bucket, key + mark + rest, None

    async def stream_object(self, path: str, file: IncomingFile) -> None:
        """Write an object to a file: a large one in parts, and one that breaks off from there on.

        All parts are of one version, unlike those of `get_file`.

        Raises:
            ObjectReplaced: If there is another version, unless botocore's error with status 412 says so.
            Transient: If the server sent less of a part than was asked for.
        """
        response = await self._get(path)
        size, version = response.get("ContentLength", 0), response.get("ETag", "")
        file.expected = size
        if size > self.default_block_size and version:
            response["Body"].close()
            await self._stream_parts(path, file, size, version)
            return
        received, failures = 0, 0
        while True:
            body = response["Body"]
            try:
                while chunk := await body.read(_READ_BYTES):
                    file.write(chunk)
                    received += len(chunk)
            except S3_RETRYABLE_ERRORS:
                failures += 1
                if failures >= self.retries or not (version and size):
                    raise
            else:
                return
            finally:
                body.close()
            # HTTP ranges include their end.
            response = await self._get(path, version, Range=f"bytes={received}-{size - 1}")
            sent = response.get("ContentRange", "")
            if response.get("ETag", "") != version or not sent.startswith(f"bytes {received}-"):
                response["Body"].close()  # a server that ignores If-Match or Range
                raise replaced_error(f"s3://{path}")

    async def _stream_parts(self, path: str, file: IncomingFile, size: int, version: str) -> None:
        part = min(self.default_block_size, _MAX_PART_BYTES)
        ranges = [(start, min(start + part, size)) for start in range(0, size, part)]
        for first in range(0, len(ranges), self.max_concurrency):
            group = ranges[first : first + self.max_concurrency]
            reads = [
                asyncio.ensure_future(self.read_version(path, *limits, version)) for limits in group
            ]
            try:
                for (start, stop), (data, found) in zip(group, await asyncio.gather(*reads)):
                    if found != version:  # a server that ignores If-Match
                        raise replaced_error(f"s3://{path}")
                    if len(data) != stop - start:
                        raise Transient(
                            f"s3://{path}: the server sent {len(data)} bytes where {stop - start} were asked "
                            "for; it may be tried again"
                        )
                    file.write(data)
            finally:
                for read in reads:  # if one fails, the others would go on
                    read.cancel()

    async def read_part(self, path: str, start: int, end: int) -> bytes:
        """Return a range of an object, and read no more of the response than that."""
        return (await self.read_version(path, start, end, ""))[0]

    async def read_version(
        self, path: str, start: int, end: int, version: str
    ) -> tuple[bytes, str]:
        """Return a range of an object, of a version if that is not empty, and the version that was read.

        Raises:
            BodyError: If the server sent a range that begins elsewhere.
        """
        # HTTP ranges include their end.
        response = await self._get(path, version, Range=f"bytes={start}-{end - 1}")
        body, sent = response["Body"], response.get("ContentRange")
        try:
            if sent:
                check_content_range(sent, start)
            return await receive_body(body.read, end - start), response.get("ETag", "")
        finally:
            body.close()

    async def _get(self, path: str, version: str = "", **request: Any) -> dict[str, Any]:
        bucket, key, _ = self.split_path(path)
        if version:
            request["IfMatch"] = version
        response: dict[str, Any] = await self._call_s3(
            "get_object", Bucket=bucket, Key=key, **request, **self.req_kw
        )
        return response
