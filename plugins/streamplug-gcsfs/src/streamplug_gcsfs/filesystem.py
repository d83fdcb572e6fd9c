"""gcsfs file system that receives objects as they are stored, and makes no retries of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import getproxies

from aiohttp import TraceConfig
from fsspec.callbacks import NoOpCallback
from gcsfs.core import GCSFileSystem
from streamplug_fsspec import bound_body, trace_requests

STORED = {"Accept-Encoding": "gzip"}
"""Headers with which Google sends the bytes of an object with ``Content-Encoding: gzip``; without, it sends
others than sizes and ranges are of, and ignores ranges.
"""

_BOUNDARY = b"--==0=="
_MIN_UPLOAD_BYTES = 5 << 20
"""Size from which on gcsfs does not send a file in a multipart request."""

# Without `retry_request` of gcsfs, in which it wraps them.
_REQUEST = GCSFileSystem._request.__wrapped__  # noqa: SLF001
_GET_FILE_REQUEST = GCSFileSystem._get_file_request.__wrapped__  # noqa: SLF001


class FileSystem(GCSFileSystem):  # type: ignore[misc]  # gcsfs has no types
    """The class of gcsfs that uses HTTP alone, without decompression.

    The class that gcsfs registers looks up the bucket type over gRPC before it reads, which takes up to a
    minute where only HTTP is reachable; and gRPC does not survive a fork. Each request is made once: gcsfs
    makes six attempts in 35 seconds, also after errors that cannot pass, beneath the retries of streamplug.
    """

    def __init__(
        self,
        *,
        session_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        trace = TraceConfig()
        trace.on_request_end.append(bound_body)
        session: dict[str, Any] = {
            "auto_decompress": False,
            # With it, aiohttp also reads ~/.netrc for each request.
            "trust_env": bool(getproxies()),
            **(session_kwargs or {}),
        }
        session["headers"] = {"Accept-Encoding": "identity", **(session.get("headers") or {})}
        traces = trace, trace_requests()
        session["trace_configs"] = [*session.get("trace_configs", ()), *traces]
        super().__init__(session_kwargs=session, **options)

    async def _request(
        self,
        method: str,
        path: str,
        *args: Any,
        headers: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> Any:
        if path.startswith(f"{self._location}/download/"):
            headers = {**STORED, **(headers or {})}
        return await _REQUEST(self, method, path, *args, headers=headers, **kwargs)

    def url(self, path: str, **kwargs: Any) -> str:
        """Return the URL of an object, given its path or its URL."""
        is_url = path.startswith(f"{self._location}/")
        return path if is_url else str(super().url(path, **kwargs))

    async def _get_file_request(
        self, path: str, lpath: str, *args: Any, callback: Any = None, **kwargs: Any
    ) -> Any:
        # gcsfs 2026.2 takes a URL here, later ones take a path, and most of them a callback always.
        callback = callback or NoOpCallback()
        return await _GET_FILE_REQUEST(
            self, self.url(path), lpath, *args, callback=callback, **kwargs
        )

    async def _pipe_file(self, path: str, data: Any, **kwargs: Any) -> Any:
        # gcsfs sends small objects in a multipart request, and Google ends them at the boundary.
        if _BOUNDARY in data:
            kwargs["chunksize"] = len(data)  # then without parts
        return await super()._pipe_file(path, data, **kwargs)

    async def _put_file(self, lpath: str, rpath: str, **kwargs: Any) -> Any:
        if Path(lpath).stat().st_size < _MIN_UPLOAD_BYTES:
            data = Path(lpath).read_bytes()
            if _BOUNDARY in data:
                return await self._pipe_file(rpath, data)
        return await super()._put_file(lpath, rpath, **kwargs)
