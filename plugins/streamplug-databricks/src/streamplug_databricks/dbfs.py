"""Files of the Databricks File System, through the DBFS API."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from typing import IO, Any

from streamplug.errors import NotFound
from streamplug_databricks.workspace import Workspace

# Maximum bytes per request of the API.
_CHUNK = 2**20

PART = ".streamplug-"
"""Name prefix of staging files, which are not listed as objects."""


class Dbfs:
    """Files outside of volumes; paths are absolute, URLs are for errors."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read(self, url: str, path: str, limits: tuple[int, int] | None = None) -> bytes:
        """Return a file, or the bytes ``[start, stop)`` of it."""
        return b"".join(self._pieces(url, path, *(limits or (0, None))))

    def chunks(self, url: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks."""
        return self._pieces(url, path, 0, None)

    def _pieces(self, url: str, path: str, start: int, stop: int | None) -> Iterator[bytes]:
        # For reads past the end, the service returns an unspecific error.
        end = self.size(url, path)
        end = end if stop is None else min(end, stop)
        while start < end:
            wanted = {"path": path, "offset": start, "length": min(_CHUNK, end - start)}
            data = base64.b64decode(self._call(url, "GET", "read", params=wanted)["data"])
            if not data:  # the file was truncated
                return
            yield data
            start += len(data)

    def write(self, url: str, path: str, source: IO[bytes], size: int) -> None:
        """Create or replace a file.

        It is written to a staging file. As the service cannot rename over an existing file, a file that is
        replaced is missing for a moment.
        """
        part = f"{path.rpartition('/')[0]}/{PART}{uuid.uuid4().hex}"
        source.seek(0)
        handle = self._call(url, "POST", "create", json={"path": part})["handle"]
        try:
            while chunk := source.read(_CHUNK):
                data = base64.b64encode(chunk).decode()
                self._call(url, "POST", "add-block", json={"handle": handle, "data": data})
            self._call(url, "POST", "close", json={"handle": handle})
            self.delete(url, path)
            self._call(url, "POST", "move", json={"source_path": part, "destination_path": path})
        except BaseException:
            self.delete(url, part)
            raise

    def size(self, url: str, path: str) -> int:
        """Return a file's size in bytes."""
        found = self._call(url, "GET", "get-status", params={"path": path})
        if found["is_dir"]:
            raise NotFound(f"{url} does not exist")
        return int(found["file_size"])

    def walk(self, url: str, folder: str) -> Iterator[tuple[str, int]]:
        """Yield path and size of all files below a folder; nothing if the folder does not exist."""
        folders = [folder or "/"]
        while folders:
            found = self._call(url, "GET", "list", missing=True, params={"path": folders.pop()})
            for entry in found.get("files", []):
                if entry["is_dir"]:
                    folders.append(entry["path"])
                elif not entry["path"].rpartition("/")[2].startswith(PART):
                    yield entry["path"], int(entry["file_size"])

    def delete(self, url: str, path: str) -> None:
        """Delete a file if it exists."""
        self._call(url, "POST", "delete", missing=True, json={"path": path, "recursive": False})

    def _call(
        self, url: str, method: str, operation: str, *, missing: bool = False, **request: Any
    ) -> dict[str, Any]:
        with self._workspace.answer(
            url, method, f"/api/2.0/dbfs/{operation}", missing=missing, **request
        ) as response:
            found: dict[str, Any] = response.json()
        return found if response.status_code == 200 else {}
