"""Storage of files on HTTP servers."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote
from urllib.request import getproxies

from streamplug.errors import ConfigError, NotFound, StorageError
from streamplug.interfaces import Storage
from streamplug.interfaces.storage import public_url
from streamplug.plugin_kit.error_mapping import status_of
from streamplug.plugin_kit.event_loop import IncomingFile
from streamplug.plugin_kit.fsspec_storage import FsspecStorage, walk_files
from streamplug.types import Buffer, ObjectInfo

_MAX_CHUNK_BYTES = 5 << 20


class _RangeIgnoredError(Exception):
    """The server returned the whole object for a range request."""


async def _demand_part(response: Any) -> None:
    if response.status == 200:
        response.close()
        raise _RangeIgnoredError
    start = response.request_info.headers.get("Range", "").partition("=")[2].partition("-")[0]
    sent = response.headers.get("Content-Range", "")
    if response.status == 206 and not sent.startswith(f"bytes {start}-"):
        response.close()
        raise StorageError(
            f"{public_url(str(response.url))}: the server sent {sent or 'an unknown range'} where bytes "
            f"from {start} on were asked for"
        )


def _environment_has_proxy_or_login() -> bool:
    netrc = os.environ.get("NETRC") or "~/.netrc"
    # Not `Path`, which raises without a home directory, or if it is another user's.
    return bool(getproxies()) or os.path.isfile(os.path.expanduser(netrc))  # noqa: PTH111, PTH113


class Http(FsspecStorage):
    """The files below an ``http://`` or ``https://`` URL; read only.

    A query in the URL, such as an access token, is sent with every request. Listing requires a server
    with HTML directory listings, and makes one request per object for its size. Options are those of
    fsspec's HTTP file system, such as ``headers`` and ``client_kwargs`` (of aiohttp). A URL with a
    fragment, or without a host, raises a `ConfigError`.
    """

    asynchronous = True
    cat_options: ClassVar[Mapping[str, Any]] = {"raise_for_status": _demand_part}

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        location, mark, query = url.partition("?")
        self._query = mark + query
        # User and password are removed from the URL, which clients log.
        scheme, _, rest = location.partition("://")
        user, at, host = rest.partition("/")[0].rpartition("@")
        if not host:
            raise ConfigError(f"{self.url!r} names no host; write http://host/path")
        name, _, password = user.partition(":")
        self._login = f"{unquote(name)}:{unquote(password)}" if user else ""
        self._location = f"{scheme}://{rest[len(user) + len(at) :]}"
        if "#" in self._location:  # clients send nothing from there on: all keys would be one page
            raise ConfigError(f"{self.url}: a '#' ends the path of a URL; write it as %23")
        self._serves_ranges: bool | None = None

    def filesystem_options(self) -> Mapping[str, Any]:
        try:
            from aiohttp import ClientTimeout
        except ImportError:
            raise StorageError(f"{self.url}: this needs aiohttp: pip install aiohttp") from None

        client: dict[str, Any] = {
            # By default aiohttp aborts any request after 5 minutes; here only if no data arrives.
            "timeout": ClientTimeout(total=None, sock_connect=30, sock_read=60),
            # With it, aiohttp searches the environment and reads ~/.netrc for every single request.
            "trust_env": _environment_has_proxy_or_login(),
            # Many servers send .gz files with Content-Encoding: gzip; keep their bytes.
            "auto_decompress": False,
            **(self._options.get("client_kwargs") or {}),
        }
        client["headers"] = {"Accept-Encoding": "identity", **dict(client.get("headers") or {})}
        if self._login:
            login = "Basic " + b64encode(self._login.encode()).decode()
            client["headers"] = {"Authorization": login, **client["headers"]}
        return {**self._options, "client_kwargs": client}

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        # `url_to_fs` would take "::", as in http://[::1]/set, for a chain of file systems.
        scheme = self._location.partition("://")[0].lower()
        return get_filesystem_class(scheme)(**options), self._location

    def path(self, key: str) -> str:
        return super().path(quote(key)) + self._query

    def download(self, key: str, path: Path) -> None:
        with self.translated(key):
            self.store(partial(_receive, self.filesystem(), self.path(key)), path)

    def serves_ranges(self, key: str) -> bool:
        if self._serves_ranges is None:
            with self.translated(key):
                result = super().cat_ranges(self.path(key), [(0, 1)])[0]
                is_ignored = isinstance(result, _RangeIgnoredError)
                # An empty file gets status 416.
                failed = isinstance(result, BaseException) and status_of(result) != 416
                if failed and not is_ignored:
                    raise result
            self._serves_ranges = not is_ignored
        return self._serves_ranges

    def cat_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        results = super().cat_ranges(path, ranges)
        if not any(isinstance(part, _RangeIgnoredError) for part in results):
            return results
        self._serves_ranges = False
        whole = self.call("cat_file", path)
        return [whole[start:stop] for start, stop in ranges]

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

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        if self._query:
            raise StorageError(f"{self.url}: a URL with a query cannot be listed")
        for info in super().objects(folder):
            with suppress(NotFound):  # a dead link
                yield self.stat(unquote(info.key))

    def find_files(self, top: str) -> Mapping[str, Mapping[str, Any]]:
        return walk_files(self.list_directory, top)

    def list_directory(self, path: str) -> Sequence[Mapping[str, Any]]:
        # fsspec finds the links in the HTML, and leaves &amp; and the like in them.
        infos = [{**info, "name": unescape(info["name"])} for info in super().list_directory(path)]
        return [info for info in infos if _is_below(info["name"], path)]


def _is_below(link: str, directory: str) -> bool:
    """Return whether a link of a directory page leads to something in the directory."""
    name = link.removeprefix(directory)
    # Pages have links that sort them, such as ?C=N;O=D.
    return {"?", "#"}.isdisjoint(name) and {".", ".."}.isdisjoint(unquote(name).split("/"))


async def _receive(filesystem: Any, remote: str, file: IncomingFile) -> None:
    session = await filesystem.set_session()
    url = filesystem.encode_url(remote)
    async with session.get(url, **filesystem.kwargs) as response:
        response.raise_for_status()
        file.expected = response.content_length
        while chunk := await response.content.read(_MAX_CHUNK_BYTES):
            file.write(chunk)
