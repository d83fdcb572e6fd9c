"""Files of the Databricks File System, through the DBFS API."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

from streamplug_fsspec import read_body

from streamplug.errors import StorageError, Transient
from streamplug.interfaces import replaced_error
from streamplug.plugin_kit import staging_path
from streamplug_databricks.workspace import Workspace

_CHUNK_BYTES = 2**20
"""Maximum bytes per request of the API."""


class Dbfs:
    """Files outside of volumes; paths are absolute."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read(self, path: str, limits: tuple[int, int] | None = None) -> bytes:
        """Return a file, or the bytes ``[start, stop)`` of it.

        Raises:
            ObjectReplaced: If it was replaced between two requests.
        """
        return b"".join(self._chunks(path, *(limits or (0, None))))

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks.

        Raises:
            ObjectReplaced: If it was replaced between two requests.
        """
        return self._chunks(path, 0, None)

    def _chunks(self, path: str, start: int, stop: int | None) -> Iterator[bytes]:
        # For reads past the end, the service returns an unspecific error.
        before = self.stat(path)
        end = before[0] if stop is None else min(before[0], stop)
        requests = 0
        while start < end:
            params = {"path": path, "offset": start, "length": min(_CHUNK_BYTES, end - start)}
            data = base64.b64decode(self._call("GET", "read", params=params)["data"])
            requests += 1
            if not data:  # the file was truncated
                break
            yield data[: end - start]
            start += len(data)
        if requests > 1 and self.stat(path) != before:
            raise replaced_error(f"dbfs:{path}")

    def write(self, path: str, source: IO[bytes], size: int) -> None:
        """Create or replace a file.

        It is written to a staging file. As the service cannot rename over an existing file, a file that is
        replaced is moved aside, and missing for a moment.

        Raises:
            StorageError: If there is a directory of this name; `Transient` if the file could be neither
                replaced nor moved back.
        """
        part = staging_path(path)
        source.seek(0)
        handle = self._call("POST", "create", json={"path": part})["handle"]
        try:
            while chunk := source.read(_CHUNK_BYTES):
                data = base64.b64encode(chunk).decode()
                self._call("POST", "add-block", json={"handle": handle, "data": data})
            self._call("POST", "close", json={"handle": handle})
            self._put(part, path)
        except BaseException:
            with suppress(Exception):
                self.delete(part)
            raise

    def _put(self, part: str, path: str) -> None:
        """Move a staging file to its path; an old file is moved back if that fails."""
        status = self._call("GET", "get-status", missing=True, params={"path": path})
        if not status:
            self._move(part, path)
            return
        if status["is_dir"]:
            raise StorageError(f"dbfs:{path}: there is a directory of this name")
        old = staging_path(path)
        try:
            self._move(path, old)
            self._move(part, path)
        except BaseException as error:
            try:
                self._move(old, path)
            except Exception:  # noqa: BLE001 - requests raises anything
                if isinstance(error, Exception):
                    raise Transient(
                        f"dbfs:{path}: it could not be replaced, and its old content may be in dbfs:{old}; "
                        "it may be tried again"
                    ) from None
            raise
        with suppress(Exception):
            self.delete(old)

    def _move(self, source: str, target: str) -> None:
        self._call("POST", "move", json={"source_path": source, "destination_path": target})

    def stat(self, path: str) -> tuple[int, str]:
        """Return a file's size in bytes, and its modification time."""
        status = self._call("GET", "get-status", params={"path": path})
        if status["is_dir"]:
            raise FileNotFoundError(path)
        return _size_and_time(status)

    def walk(self, folder: str) -> Iterator[tuple[str, int, str]]:
        """Yield path, size and modification time of all files below a folder.

        There are none if the folder does not exist.
        """
        folders = [folder or "/"]
        while folders:
            listing = self._call("GET", "list", missing=True, params={"path": folders.pop()})
            for entry in listing.get("files", []):
                if entry["is_dir"]:
                    folders.append(entry["path"])
                else:
                    yield entry["path"], *_size_and_time(entry)

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        self._call("POST", "delete", missing=True, json={"path": path, "recursive": False})

    def close(self) -> None:
        """Close the connections."""
        self._workspace.close()

    def _call(
        self, method: str, operation: str, *, missing: bool = False, **request: Any
    ) -> dict[str, Any]:
        path = f"/api/2.0/dbfs/{operation}"
        with self._workspace.answer(method, path, missing=missing, **request) as response:
            content: dict[str, Any] = json.loads(read_body(response.iter_content(_CHUNK_BYTES)))
        return content if response.status_code == 200 else {}


def _size_and_time(status: Mapping[str, Any]) -> tuple[int, str]:
    return int(status["file_size"]), str(status.get("modification_time", ""))
