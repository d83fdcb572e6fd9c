"""Storage of files on HTTP servers."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import getproxies

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError
from streamplug.interfaces import Storage
from streamplug.plugin_kit import SYSTEM_DIRECTORIES
from streamplug.types import Buffer, ObjectInfo
from streamplug_fsspec.body import (
    CHUNK_BYTES,
    MAX_UNSIZED_BYTES,
    BodyPart,
    BoundedContent,
    check_content_range,
    receive_body,
)
from streamplug_fsspec.directory_page import links_below
from streamplug_fsspec.error_mapping import status_of
from streamplug_fsspec.event_loop import IncomingFile
from streamplug_fsspec.fsspec_storage import FsspecStorage
from streamplug_fsspec.http_headers import basic_login, check_headers, take_headers
from streamplug_fsspec.rate_limiter import trace_requests

_MAX_CHUNK_BYTES = 5 << 20
_HOST = re.compile(r"[^:]*(?::[0-9]*)?|\[.*\](?::[0-9]*)?")


_PORTABLE_HEADERS = frozenset(
    (
        *("accept", "accept-encoding", "accept-language", "cache-control"),
        *("if-match", "range", "user-agent"),
    )
)
"""Headers that a redirect to another host keeps; others of the user may be credentials."""


class _RangeIgnoredError(Exception):
    """The server returned the whole object for a range request."""


def _environment_has_proxy_or_login() -> bool:
    netrc = os.environ.get("NETRC") or "~/.netrc"
    # Not `Path`, which raises without a home directory, or if it is another user's.
    return bool(getproxies()) or os.path.isfile(os.path.expanduser(netrc))  # noqa: PTH111, PTH113


class HttpStorage(FsspecStorage):
    """The files below an ``http://`` or ``https://`` URL; read only.

    A query in the URL, such as an access token, is sent with every request. Listing requires a server
    with HTML directory listings, and makes one request per object for its size. A redirect to another
    scheme, host or port gets none of the user's headers, cookies and logins. Files are read as they are
    stored, whatever their Content-Encoding.
    """

    asynchronous = True
    limits_requests = True

    def __init__(
        self, url: str, *, queries: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        """Set the location and its options.

        Args:
            url: The location; user and password in it are sent as a login.
            queries: Query of each file that has another one than the URL, with its question mark, by key.
            **options: Those of fsspec's HTTP file system, such as `headers`, `cookies`, `auth`, which has a
                user and a password, and `client_kwargs` (of aiohttp).

        Raises:
            ConfigError: If the URL has a fragment, or no host and port, or an option is invalid.
        """
        super().__init__(url, **options)
        check_headers(options)
        given: Any = {} if queries is None else queries
        is_dict = isinstance(given, Mapping)
        if not (is_dict and all(isinstance(text, str) for item in given.items() for text in item)):
            raise ConfigError(
                f"http storage option 'queries' must be a dict of str, not {type(given).__name__}"
            )
        self._queries: dict[str, str] = dict(given)
        location, mark, query = url.partition("?")
        self._query = mark + query
        # User and password are removed from the URL, which clients log.
        scheme, _, rest = location.partition("://")
        user, at, host = rest.partition("/")[0].rpartition("@")
        if not host:
            raise ConfigError(f"{self.url!r} names no host; write http://host/path")
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"{self.url!r}: its host has a port that is no number; write http://host:80/path, and '?' in "
                "a password as %3F"
            )
        name, _, password = user.partition(":")
        self._login = (unquote(name), unquote(password)) if user else None
        self._location = f"{scheme}://{rest[len(user) + len(at) :]}"
        if "#" in self._location:  # clients send nothing from there on: all keys would be one page
            raise ConfigError(f"{self.url}: a '#' ends the path of a URL; write it as %23")
        self._serves_ranges: bool | None = None
        self._tells_versions = True

    def filesystem_options(self) -> Mapping[str, Any]:
        try:
            from aiohttp import ClientTimeout, TraceConfig
        except ImportError:
            raise StorageError(
                f"{self.url}: this needs aiohttp: pip install streamplug[http]"
            ) from None

        options = dict(self._options)
        client: dict[str, Any] = {
            # By default aiohttp aborts any request after 5 minutes; here only if no data arrives.
            "timeout": ClientTimeout(total=None, sock_connect=30, sock_read=60),
            # With it, aiohttp searches the environment and reads ~/.netrc for every single request.
            "trust_env": _environment_has_proxy_or_login(),
            # Many servers send .gz files with Content-Encoding: gzip; keep their bytes.
            "auto_decompress": False,
            **(options.pop("client_kwargs", None) or {}),
        }
        client["headers"] = {
            "Accept-Encoding": "identity",
            **({"Authorization": basic_login(*self._login)} if self._login else {}),
            **take_headers(client),
            **take_headers(options),
        }
        trace = TraceConfig()
        trace.on_request_redirect.append(_drop_credentials)
        trace.on_request_end.append(_bound_body)
        traces = trace, trace_requests()
        client["trace_configs"] = [*(client.get("trace_configs") or ()), *traces]
        return {**options, "client_kwargs": client}

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        # `url_to_fs` would take "::", as in http://[::1]/set, for a chain of file systems.
        scheme = self._location.partition("://")[0].lower()
        return get_filesystem_class(scheme)(**options), self._location

    def path(self, key: str) -> str:
        return super().path(quote(key)) + self._queries.get(key, self._query)

    def read(self, key: str) -> bytes:
        with self.translated(key):
            whole: bytes = self.run(partial(_read, self.filesystem(), self.path(key)))
            return whole

    def part_reader(self) -> Any:
        return partial(_read_part, self.filesystem())

    def version_reader(self) -> Any:
        return partial(_read_version, self.filesystem())

    def download(self, key: str, path: Path) -> None:
        with self.translated(key):
            self.store(partial(_receive, self.filesystem(), self.path(key)), path)

    def serves_ranges(self, key: str) -> bool:
        if self._serves_ranges is None:
            with self.translated(key):
                result = super().cat_versions(self.path(key), [(0, 1)], "")[0]
                is_ignored = isinstance(result, _RangeIgnoredError)
                # An empty file gets status 416.
                failed = isinstance(result, BaseException) and status_of(result) != 416
                if failed and not is_ignored:
                    raise result
            self._serves_ranges = not is_ignored
            self._tells_versions = isinstance(result, BaseException) or bool(result[1])
        return self._serves_ranges

    def cat_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        results = super().cat_ranges(path, ranges)
        if not any(isinstance(part, _RangeIgnoredError) for part in results):
            return results
        self._serves_ranges = False
        return [part for part, _ in self._cat_whole(path, ranges)]

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        return super().read_version(key, ranges, version) if self._tells_versions else ([], "")

    def cat_versions(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[Any]:
        results = super().cat_versions(path, ranges, version)
        if not any(isinstance(part, _RangeIgnoredError) for part in results):
            return results
        self._serves_ranges = False
        return self._cat_whole(path, ranges)

    def _cat_whole(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[bytes, str]]:
        parts: list[tuple[bytes, str]] = self.run(
            partial(_read_parts_of_whole, self.filesystem(), path, ranges)
        )
        return parts

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        results = self.cat_parts(parts)
        if any(isinstance(part, _RangeIgnoredError) for part in results):
            self._serves_ranges = False
            return Storage.read_many(self, parts)
        return [self._bytes_or_error(key, part) for (key, _, _), part in zip(parts, results)]

    def write(self, key: str, data: Buffer) -> None:
        raise self._read_only(key)

    def upload(self, path: Path, key: str) -> None:
        raise self._read_only(key)

    def delete(self, key: str) -> None:
        raise self._read_only(key)

    def _read_only(self, key: str) -> StorageError:
        return StorageError(f"{self.url_of(key)}: storage over HTTP is only for reading")

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            size, version = self.run(partial(_stat, self.filesystem(), self.path(key)))
        if size is None:
            raise StorageError(f"{self.url_of(key)}: the server does not report its size")
        return ObjectInfo(key, size, version.strip('"'))

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        if self._query or self._queries:
            raise StorageError(f"{self.url}: a URL with a query cannot be listed")
        for info in super().objects(folder):
            with suppress(NotFound):  # a dead link
                yield self.stat(unquote(info.key))

    def find_files(self, top: str) -> Mapping[str, Mapping[str, Any]]:
        # fsspec's own `find` skips all subdirectories that cannot be read.
        files, folders = {}, [top]
        while folders:
            folder = folders.pop()
            try:
                names = self._list_directory(folder)
            except NotFound:  # below `top`, it was removed meanwhile
                continue
            except AccessDenied:
                if folder != top and folder.rpartition("/")[2] in SYSTEM_DIRECTORIES:
                    continue
                raise
            for name in names:
                path = f"{folder.rstrip('/')}/{name}"
                if name.endswith("/"):
                    folders.append(path.rstrip("/"))
                else:
                    files[path] = {"size": None}
        return files

    def _list_directory(self, path: str) -> Sequence[str]:
        """Return the quoted paths of what a directory links to, relative to it."""
        key = path[len(self.client()[1]) :].lstrip("/")
        with self.translated(key):  # names this directory in errors
            names: Sequence[str] = self.run(partial(_list, self.filesystem(), path))
        return names


async def _drop_credentials(_session: Any, _context: Any, redirect: Any) -> None:
    """Drop the user's headers if a redirect leads to another scheme, host or port."""
    from yarl import URL

    answer = redirect.response
    origin = None
    with suppress(ValueError):  # aiohttp refuses the redirect
        location = answer.headers.get("Location") or answer.headers.get("URI", "")
        origin = answer.url.join(URL(location)).origin()
    if origin != answer.url.origin():
        for name in set(redirect.headers):
            if name.lower() not in _PORTABLE_HEADERS:
                redirect.headers.popall(name, None)


async def _bound_body(_session: Any, _context: Any, request: Any) -> None:
    # Whatever its headers say: it is a listing.
    request.response.content = BoundedContent(request.response.content)


@asynccontextmanager
async def _answer(
    filesystem: Any, remote: str, headers: Mapping[str, str] | None = None, method: str = "get"
) -> AsyncIterator[Any]:
    session = await filesystem.set_session()
    options = {"headers": headers, "allow_redirects": True, **filesystem.kwargs}
    request = getattr(session, method)
    async with request(filesystem.encode_url(remote), **options) as response:
        response.raise_for_status()
        yield response


async def _stat(filesystem: Any, remote: str) -> tuple[int | None, str]:
    """Return size and version of a file: the size of what is sent, which need not be decoded."""
    with suppress(Exception):  # a signature of a URL may be for GET alone
        async with _answer(filesystem, remote, method="head") as response:
            if response.content_length is not None:
                return response.content_length, _version(response)
    async with _answer(filesystem, remote) as response:
        return response.content_length, _version(response)


async def _list(filesystem: Any, remote: str) -> list[str]:
    # fsspec's own `ls` takes some names for other URLs, and cuts those with an apostrophe.
    async with _answer(filesystem, remote) as response:
        if response.headers.get("Content-Type", "text/html").partition(";")[0] != "text/html":
            return []
        page = await response.text(errors="ignore")
        simple = bool(filesystem.simple_links)
        return links_below(page, str(response.url), with_plain_urls=simple)


async def _read(filesystem: Any, remote: str) -> bytes:
    async with _answer(filesystem, remote) as response:
        size = response.content_length
        return await receive_body(
            response.content.read, MAX_UNSIZED_BYTES if size is None else size
        )


async def _read_part(filesystem: Any, remote: str, start: int, end: int) -> bytes:
    return (await _read_version(filesystem, remote, start, end, ""))[0]


async def _read_version(
    filesystem: Any, remote: str, start: int, end: int, version: str
) -> tuple[bytes, str]:
    # HTTP ranges include their end.
    headers = {"Range": f"bytes={start}-{end - 1}"}
    if version.startswith('"'):  # a strong ETag; servers match no other
        headers["If-Match"] = version
    async with _answer(filesystem, remote, headers) as response:
        if response.status == 200:
            raise _RangeIgnoredError
        check_content_range(response.headers.get("Content-Range", ""), start)
        data = await receive_body(response.content.read, end - start)
        return data, _version(response)


def _version(response: Any) -> str:
    headers: Mapping[str, str] = response.headers
    return headers.get("ETag") or headers.get("Last-Modified", "")


async def _read_parts_of_whole(
    filesystem: Any, remote: str, ranges: Sequence[tuple[int, int]]
) -> list[tuple[bytes, str]]:
    parts = [BodyPart(stop - start, start, is_all=False) for start, stop in ranges]
    async with _answer(filesystem, remote) as response:
        while not all(part.is_complete for part in parts):
            chunk = await response.content.read(CHUNK_BYTES)
            if not chunk:
                break
            for part in parts:
                part.add(chunk)
        return [(part.join(), _version(response)) for part in parts]


async def _receive(filesystem: Any, remote: str, file: IncomingFile) -> None:
    async with _answer(filesystem, remote) as response:
        file.expected = response.content_length
        while chunk := await response.content.read(_MAX_CHUNK_BYTES):
            file.write(chunk)
