"""Storage for repositories of the Hugging Face Hub, read-only, and for its buckets."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streamplug_fsspec import (
    MAX_CONCURRENT_READS,
    ClientStorage,
    error_of_status,
    one_version,
    read_body,
    read_concurrently,
    read_range_body,
    write_chunks,
)

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.interfaces import public_url
from streamplug.types import Buffer, ObjectInfo
from streamplug_hf.options import CONNECT_TIMEOUT, READ_TIMEOUT, check, parse
from streamplug_hf.xet import XetAccess, chunks, open_session, store

_CHUNK_BYTES = 2**20


class HfStorage(ClientStorage):
    """The files below ``hf://datasets/OWNER/NAME[@REVISION]/path`` or ``hf://buckets/OWNER/NAME/path``.

    Repositories are read-only: each write would be a commit, and the Hub refuses many small ones. The README
    describes the options.
    """

    limits_requests = True

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``hf://datasets/OWNER/NAME[@REVISION]/path`` or ``hf://buckets/OWNER/NAME/path``;
                ``hf://spaces/…`` and ``hf://OWNER/NAME/…`` (a model) work too.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no repository or bucket, or a second revision, or an option is
                unknown or invalid.
        """
        super().__init__(url, **options)
        check(options)
        self._place = parse(url)
        revision = options.get("revision")
        if None not in (revision, self._place.revision) and revision != self._place.revision:
            raise ConfigError(f"{self.url!r} names another revision than the option {revision!r}")
        if self._place.is_bucket and revision is not None:
            raise ConfigError(f"{self.url!r}: a bucket has no revisions; leave out revision=")
        self._revision = self._place.revision or revision or "main"
        if revision:  # the files of two revisions are not those of one location
            self.url = self._place.url_of_revision(revision)

    def open_client(self) -> Any:
        """Return a session of Xet."""
        return open_session(self.url)

    # -- reading --------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with self.translated(key), self._answer("GET", self._file(key)) as response:
            self._check(response, key)
            return bytes(response.read())

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._get(key, (start, stop))[0] if start < stop else b""

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        # The Hub knows no If-Match for a file that lies on another host.
        limit = self._options.get("max_concurrency") or MAX_CONCURRENT_READS
        parts = read_concurrently(lambda limits: self._get(key, limits), ranges, limit)
        return one_version(parts, version, self.url_of(key))

    def _get(self, key: str, limits: tuple[int, int]) -> tuple[bytes, str | None]:
        """Return a range of a file, and the version that was read, None beyond the end."""
        # HTTP ranges include their end.
        headers = {"Range": f"bytes={limits[0]}-{limits[1] - 1}"}
        with self.translated(key), self._answer("GET", self._file(key), headers) as response:
            if response.status_code == 416:  # the range starts beyond the end
                return b"", None
            self._check(response, key)
            chunks = response.iter_bytes(_CHUNK_BYTES)
            sent = response.status_code, response.headers.get("Content-Range")
            return read_range_body(chunks, *limits, *sent), _version(response)

    def download(self, key: str, path: Path) -> None:
        if self._options.get("xet"):
            entry = self._entry(key)
            if "xetHash" in entry and entry["size"]:
                with self.translated(key), path.open("wb", buffering=0) as file:
                    access = self._xet_access("read", key)
                    content = chunks(self.client(), access, entry["xetHash"], entry["size"])
                    write_chunks(file, content)
                return
        with self.translated(key), self._answer("GET", self._file(key)) as response:
            self._check(response, key)
            with path.open("wb", buffering=0) as file:
                write_chunks(file, response.iter_bytes(_CHUNK_BYTES))

    def stat(self, key: str) -> ObjectInfo:
        return _info(key, self._entry(key))

    def _entry(self, key: str) -> Mapping[str, Any]:
        """Return what the Hub says of a file."""
        path = self._path(key)
        with (
            self.translated(key),
            self._answer("POST", self._api("paths-info"), json={"paths": [path]}) as response,
        ):
            self._check(response, key)
            infos = json.loads(read_body(response.iter_bytes(_CHUNK_BYTES)))
            entries = [entry for entry in infos if entry["path"] == path]
        if not entries or entries[0]["type"] != "file":
            raise NotFound(f"{self.url_of(key)} does not exist")
        found: Mapping[str, Any] = entries[0]
        return found

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        path = self._path(folder)
        start = len(self._place.folder) + 1 if self._place.folder else 0
        below = f"{path}/" if path else ""
        url: str | None = (
            f"{self._api('tree')}/{quote(path, safe='')}".rstrip("/") + "?recursive=true"
        )
        while url:
            with self._answer("GET", url) as response:
                # A missing folder is empty; a missing repository is an error.
                if response.headers.get("X-Error-Code") == "EntryNotFound":
                    return
                self._check(response, folder)
                page = json.loads(read_body(response.iter_bytes(_CHUNK_BYTES)))
                url = response.links.get("next", {}).get("url")
            for entry in page:
                # A prefix of a bucket is one of names, not a folder.
                if entry["type"] == "file" and entry["path"].startswith(below):
                    yield _info(entry["path"][start:], entry)

    # -- writing --------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        self._put(key, data)

    def send_file(self, path: Path, key: str) -> None:
        self._put(key, path)

    def _put(self, key: str, source: Buffer | Path) -> None:
        self._check_writable(key)
        with self.translated(key):
            file_hash = store(self.client(), self._xet_access("write", key), source)
            added = {
                "type": "addFile",
                "path": self._path(key),
                "xetHash": file_hash,
                "mtime": round(time.time() * 1000),
            }
            self._change(key, added)

    def delete(self, key: str) -> None:
        self._check_writable(key)
        with self.translated(key):
            if self.exists(key):
                self._change(key, {"type": "deleteFile", "path": self._path(key)})

    def _change(self, key: str, change: Mapping[str, Any]) -> None:
        """Change a file of a bucket, which is atomic."""
        url = f"{self._endpoint()}/api/buckets/{self._place.repository}/batch"
        headers = {"Content-Type": "application/x-ndjson"}
        with self._answer("POST", url, headers, content=json.dumps(change) + "\n") as response:
            body = read_body(response.iter_bytes(_CHUNK_BYTES))
            if response.status_code not in (200, 422):  # these name what failed
                self._check(response, key)
            if json.loads(body).get("failed") or response.status_code == 422:
                raise StorageError(f"{self.url_of(key)}: the Hub refuses to change this file")

    def _check_writable(self, key: str) -> None:
        self._path(key)
        if self._place.is_bucket:
            return
        kind = self._place.kind[:-1]
        raise StorageError(
            f"{self.url_of(key)} cannot be written: in a repository of the Hub every write is a commit. "
            "Write the set to a bucket, hf://buckets/OWNER/NAME, or to a local folder, then run: "
            f"hf upload --repo-type {kind} {self._place.repository} FOLDER {self._place.folder or '.'}"
        )

    def _xet_access(self, what: str, key: str) -> XetAccess:
        """Return access to read or write the files of the repository or bucket in Xet."""
        url = self._api(f"xet-{what}-token")
        with self._answer("GET", url) as response:
            self._check(response, key)
            found = json.loads(read_body(response.iter_bytes(_CHUNK_BYTES)))
        return XetAccess(found["casUrl"], found["accessToken"], found["exp"], url, self._headers())

    # -- the Hub --------------------------------------------------------------------

    def _path(self, key: str) -> str:
        """Return a file's path in its repository."""
        self.check_key(key)
        return "/".join(part for part in (self._place.folder, key) if part)

    @property
    def endpoint(self) -> str:
        named = self._options.get("endpoint_url") or os.environ.get("HF_ENDPOINT", "")
        return public_url(named).rstrip("/")

    @property
    def request_place(self) -> str:
        # The Hub counts the requests for all repositories.
        return self._endpoint()

    def _endpoint(self) -> str:
        from huggingface_hub import constants

        return (self._options.get("endpoint_url") or constants.ENDPOINT).rstrip("/")

    def _file(self, key: str) -> str:
        kind = "" if self._place.kind == "models" else f"{self._place.kind}/"
        path = quote(self._path(key))
        return (
            f"{self._endpoint()}/{kind}{self._place.repository}/resolve{self._of_revision()}/{path}"
        )

    def _api(self, what: str) -> str:
        place = f"{self._place.kind}/{self._place.repository}"
        return f"{self._endpoint()}/api/{place}/{what}{self._of_revision()}"

    def _of_revision(self) -> str:
        return "" if self._place.is_bucket else f"/{quote(self._revision, safe='')}"

    def _headers(self) -> dict[str, str]:
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # it is there
            build_hf_headers,
        )

        headers = build_hf_headers(token=self._options.get("token"), library_name="streamplug")
        return dict(headers)

    @contextmanager
    def _answer(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, **body: Any
    ) -> Iterator[Any]:
        """Send an authenticated request with timeouts, which the client does not set."""
        from huggingface_hub.utils import get_session  # type: ignore[attr-defined]  # it is there

        read = self._options.get("read_timeout") or READ_TIMEOUT
        connect = self._options.get("connect_timeout") or CONNECT_TIMEOUT
        self.rate_limiter.acquire_in_thread()
        with get_session().stream(
            method,
            url,
            headers={**self._headers(), "Accept-Encoding": "identity", **(headers or {})},
            timeout=(connect, read, read, connect),
            follow_redirects=True,
            **body,
        ) as response:
            self.rate_limiter.note(response.status_code, response.headers)
            yield response

    def _check(self, response: Any, key: str) -> None:
        status, url = response.status_code, self.url_of(key)
        if status < 300:
            return
        if status in (401, 403):
            raise AccessDenied(
                f"no permission for {url}: the {self._kind_text()} is private, gated or does not exist; "
                "set HF_TOKEN to a token that may read or write it, and accept its terms on the Hub"
            )
        if response.headers.get("X-Error-Code") == "RevisionNotFound":
            raise NotFound(f"{url} does not exist: there is no revision {self._revision!r}")
        raise error_of_status(status, url, response.headers)

    def _kind_text(self) -> str:
        return "bucket" if self._place.is_bucket else "repository"

    def translate(self, error: Exception, url: str) -> StorageError | None:
        names = {cls.__name__ for cls in type(error).__mro__}
        if "LocalTokenNotFoundError" in names:
            return AccessDenied(f"no token for {url}; set HF_TOKEN, or run: hf auth login")
        if "OfflineModeIsEnabled" in names:
            return StorageError(f"{url}: HF_HUB_OFFLINE is set, so nothing is asked of the Hub")
        if "CERTIFICATE" in str(error):
            return StorageError(f"{url}: the server's certificate is not trusted")
        if "TransportError" in names:
            return Transient(f"{url}: {type(error).__name__}; it may be tried again")
        return None


def _info(key: str, entry: Mapping[str, Any]) -> ObjectInfo:
    # Files of a bucket have no id of git.
    version = entry.get("oid") or entry.get("xetHash") or ""
    return ObjectInfo(key, int(entry["size"]), str(version))


def _version(response: Any) -> str:
    """Return the ETag of a file: for one that lies on another host, that which the Hub redirects to."""
    answers = [*response.history, response]
    tags = (answer.headers.get("X-Linked-ETag") for answer in answers)
    return next(filter(None, tags), "") or response.headers.get("ETag", "")
