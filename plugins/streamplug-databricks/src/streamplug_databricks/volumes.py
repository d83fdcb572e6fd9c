"""Files of Unity Catalog volumes, through the Files API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import IO, Any
from urllib.parse import quote

from streamplug_fsspec import read_body, read_range_body

from streamplug_databricks.workspace import Workspace

_CHUNK_BYTES = 2**20


class Volumes:
    """The files below ``/Volumes``; paths are absolute."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read(self, path: str, limits: tuple[int, int] | None = None) -> bytes:
        """Return a file, or the bytes ``[start, stop)`` of it."""
        # HTTP ranges include their end.
        headers = {"Range": f"bytes={limits[0]}-{limits[1] - 1}"} if limits else {}
        with self._workspace.answer("GET", _file(path), headers=headers) as response:
            if response.status_code == 416:  # the range starts beyond the end
                return b""
            if limits is None:
                return bytes(response.content)
            chunks = response.iter_content(_CHUNK_BYTES)
            sent = response.status_code, response.headers.get("Content-Range")
            return read_range_body(chunks, *limits, *sent)

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks."""
        with self._workspace.answer("GET", _file(path)) as response:
            yield from response.iter_content(_CHUNK_BYTES)

    def write(self, path: str, source: IO[bytes], size: int) -> None:
        """Create or replace a file; it becomes visible when the upload is complete."""
        for attempt in (1, 2):
            source.seek(0)
            # requests would send an empty file without a length.
            with self._workspace.answer(
                "PUT",
                _file(path),
                missing=attempt == 1,
                params={"overwrite": "true"},
                data=source if size else b"",
                headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
            ) as response:
                if response.status_code != 404:
                    return
            folder = _quoted("directories", path.rpartition("/")[0])
            with self._workspace.answer("PUT", folder):
                pass

    def stat(self, path: str) -> tuple[int, str]:
        """Return a file's size in bytes, and its modification time in whole seconds."""
        with self._workspace.answer("HEAD", _file(path)) as response:
            headers = response.headers
            return int(headers["Content-Length"]), _seconds(headers.get("Last-Modified", ""))

    def walk(self, folder: str) -> Iterator[tuple[str, int, str]]:
        """Yield path, size and modification time in whole seconds of all files below a folder.

        There are none if the folder does not exist.
        """
        folders = [folder]
        while folders:
            for entry in self._entries(folders.pop()):
                if entry["is_directory"]:
                    folders.append(entry["path"].rstrip("/"))
                else:
                    milliseconds = entry.get("last_modified")
                    # HTTP dates, which `stat` gets, have no fractions.
                    modified = "" if milliseconds is None else str(int(milliseconds) // 1000)
                    yield entry["path"], int(entry["file_size"]), modified

    def _entries(self, folder: str) -> Iterator[dict[str, Any]]:
        page: dict[str, Any] = {"page_size": 1000}
        while True:
            place = _quoted("directories", folder)
            with self._workspace.answer("GET", place, missing=True, params=page) as response:
                if response.status_code == 404:
                    return
                listing = json.loads(read_body(response.iter_content(_CHUNK_BYTES)))
            yield from listing.get("contents", [])
            if not listing.get("next_page_token"):
                return
            page["page_token"] = listing["next_page_token"]

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        with self._workspace.answer("DELETE", _file(path), missing=True):
            pass

    def close(self) -> None:
        """Close the connections."""
        self._workspace.close()


def _seconds(date: str) -> str:
    """Return the time of an HTTP date in seconds; empty if there is none."""
    try:
        return str(int(parsedate_to_datetime(date).timestamp()))
    except ValueError:
        return ""


def _file(path: str) -> str:
    return _quoted("files", path)


def _quoted(kind: str, path: str) -> str:
    return f"/api/2.0/fs/{kind}{quote(path)}"
