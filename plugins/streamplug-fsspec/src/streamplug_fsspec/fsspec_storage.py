"""Storage over an fsspec file system, the base class of most cloud plugins."""

from __future__ import annotations

import os
import re
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, ClassVar

from streamplug.errors import AlreadyExists, ConfigError, NotFound, StorageError, Transient
from streamplug.interfaces import replaced_error
from streamplug.plugin_kit import staging_path
from streamplug.types import Buffer, ObjectInfo
from streamplug_fsspec.client_storage import ClientStorage
from streamplug_fsspec.error_mapping import status_of
from streamplug_fsspec.event_loop import (
    IncomingFile,
    run_on_loop,
    store_on_loop,
)
from streamplug_fsspec.hedging import make_hedges
from streamplug_fsspec.object_version import conditional_reads, one_version
from streamplug_fsspec.one_at_a_time import OneAtATime, shares_position
from streamplug_fsspec.shared_clients import forget_client

_OBJECT_STORES = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "hf", "http", "https", "memory")
)
"""Protocols without real directories, whose writes are atomic."""

_VERSIONS = (
    *("ETag", "etag", "content_md5", "mtime", "LastModified", "last_modified", "updated"),
    *("Last-Modified", "modified", "created", "modificationTime", "modify", "sha"),
)

_ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]*):/(?!/)", re.IGNORECASE)

_READS = ("read_many", "read_ranges", "read_range", "cat_ranges")
_RANGE_READS = ("read_ranges", "read_range")
_PART_READS = ("version_reader", *_READS)

_filesystems: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""All file systems; those of closed storages are in reference cycles until garbage collection."""

_inherited_filesystems: list[Any] = []


class FsspecStorage(ClientStorage):
    """Any URL that fsspec can open, such as ``ftp://host/set`` or ``simplecache::s3://bucket/set``.

    Options are passed to the fsspec file system. A URL with one slash raises a `ConfigError`. A plugin for
    one cloud overrides `filesystem_options` to convert its own options, and `translate` for exceptions of
    its client that the general rules do not cover.

    Attributes:
        asynchronous: Whether the file system has an event loop, which reads parts of many objects
            concurrently.
        can_create: Whether `create` works: the file system has ``pipe_file(…, mode="create")``, and the
            service refuses to replace an object then.
    """

    asynchronous: ClassVar[bool] = False
    can_create: ClassVar[bool] = False

    def __init__(self, url: str, *, hedge: bool | None = None, **options: Any) -> None:
        """Set the location and its options; `hedge` is as for `make_hedges`."""
        super().__init__(url, **options)
        self._hedges = make_hedges(self.url, hedge, can_cancel=self.asynchronous)
        # For fsspec, a URL with one slash is a path in the working directory.
        if match := _ONE_SLASH.match(url):
            raise ConfigError(f"{self.url}: write {match[1]}:// with two slashes")

    @classmethod
    def supports_scheme(cls, scheme: str) -> bool:
        from fsspec import available_protocols

        return scheme in available_protocols()

    def filesystem_options(self) -> Mapping[str, Any]:
        """Return the keyword arguments of the fsspec file system for this storage's options."""
        return self._options

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        """Return a new file system with these options, and its path of this location."""
        from fsspec.core import url_to_fs

        filesystem, root = url_to_fs(self._location, **options)
        return filesystem, str(root)

    def filesystem(self) -> Any:
        """Return this process's file system, opening it on first use."""
        return self.client()[0]

    def path(self, key: str) -> str:
        """Return the file system's path of an object; raise `StorageError` if it is outside the location."""
        self.check_key(key)
        root = self.client()[1]
        return f"{root}/{key}" if key else root or "/"

    def open_client(self) -> tuple[Any, str]:
        """Return a new file system, and its path of this location."""
        from fsspec.dircache import DirCache

        # Not fsspec's shared instances: ours is closed with this storage.
        options = {**self.filesystem_options(), "skip_instance_cache": True}
        filesystem, root = self.make_filesystem(options)
        _filesystems[id(filesystem)] = filesystem
        # Cached listings would hide what other processes write.
        if isinstance(filesystem.dircache, DirCache):
            filesystem.dircache.use_listings_cache = False
        if shares_position(filesystem):
            filesystem = OneAtATime(filesystem)
        return filesystem, root.rstrip("/")

    def renew_client(self) -> None:
        if (client := self._client) is not None:
            forget_client(client[0])
        super().renew_client()

    def _convert(self, error: Exception, url: str) -> StorageError:
        converted = super()._convert(error, url)
        # A connection that was lost, as by a server that closes idle ones, is not made again by itself.
        is_shared = self._client is not None and isinstance(self._client[0], OneAtATime)
        if is_shared and isinstance(converted, Transient):
            self.renew_client()
        return converted

    def read(self, key: str) -> bytes:
        with self.translated(key):
            return bytes(self.call("cat_file", self.path(key)))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        read = self._read_ranges if self._overrides_read_range() else self.read_ranges
        return read(key, [(start, stop)])[0]

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if self._overrides_read_range():
            return list(map(bytes, super().read_ranges(key, ranges)))
        return self._read_ranges(key, ranges)

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        # A subclass that overrides a method for ranges must have it called.
        classes = type(self).__mro__
        first = next(cls for cls in classes if not vars(cls).keys().isdisjoint(_PART_READS))
        if "version_reader" not in vars(first) or self.version_reader() is None:
            return super().read_version(key, ranges, version)
        with self.translated(key), conditional_reads(self.url_of(key)):
            results = self.cat_versions(self.path(key), ranges, version)
            parts = [_bytes_and_version(result) for result in results]
        return one_version(parts, version, self.url_of(key))

    def cat_versions(self, path: str, ranges: Sequence[tuple[int, int]], version: str) -> list[Any]:
        """Return bytes and version, or the exception, of each range of a path."""
        read = self.version_reader()
        requests = [
            partial(read, path, start=start, end=stop, version=version) for start, stop in ranges
        ]
        return self._gather(requests, ranges)

    def _gather(
        self,
        requests: Sequence[Callable[[], Awaitable[Any]]],
        ranges: Sequence[tuple[int, int]],
    ) -> list[Any]:
        """Return what each request for a range returns, or its exception."""
        sizes = [stop - start for start, stop in ranges]
        is_limited = self.rate_limiter.is_limiting
        gather = partial(self._hedges.gather, requests, sizes, is_limited=is_limited)
        results: list[Any] = self.run(gather)
        return results

    def version_reader(self) -> Any:
        """Return a coroutine function of path, start, end and version, or None: then `stat` tells versions.

        It returns the bytes and the version that the response tells, which is empty if it tells none. If its
        argument `version` is not empty, it requests that version, if the service can.
        """
        return None

    def _overrides_read_range(self) -> bool:
        """Return whether a subclass overrides `read_range`, and neither it nor its subclass `read_ranges`."""
        cls = type(self)
        if cls.read_range is FsspecStorage.read_range:
            return False
        first = next(c for c in cls.__mro__ if not vars(c).keys().isdisjoint(_RANGE_READS))
        return "read_ranges" not in vars(first)

    def _read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        filled = [(start, stop) for start, stop in ranges if stop > start]
        if not filled:
            return [b""] * len(ranges)
        with self.translated(key):
            results = iter(self.cat_ranges(self.path(key), filled))
            return [_bytes(next(results)) if stop > start else b"" for start, stop in ranges]

    @property
    def supports_read_many(self) -> bool:
        # A subclass that overrides a method for single objects must have it called.
        first = next(cls for cls in type(self).__mro__ if not vars(cls).keys().isdisjoint(_READS))
        return self.asynchronous and "read_many" in vars(first)

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        if not self.supports_read_many:
            return super().read_many(parts)
        results = self.cat_parts(parts)
        return [self._bytes_or_error(key, result) for (key, _, _), result in zip(parts, results)]

    def _bytes_or_error(self, key: str, result: bytes | BaseException) -> Buffer | StorageError:
        try:
            with self.translated(key):
                return _bytes(result)
        except StorageError as error:
            return error

    def cat_parts(self, parts: Sequence[tuple[str, int, int]]) -> list[Any]:
        """Return the bytes or the exception of each part of an object."""
        with self.translated(parts[0][0]):
            return self._cat([(self.path(key), start, stop) for key, start, stop in parts])

    def cat_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Return the bytes or the exception of each range of a path."""
        return self._cat([(path, start, stop) for start, stop in ranges])

    def _cat(self, parts: Sequence[tuple[str, int, int]]) -> list[Any]:
        read_part = self.part_reader()
        if read_part is not None:
            # fsspec's own cat_ranges does not cancel its requests when it is cancelled.
            requests = [
                partial(read_part, path, start=start, end=stop) for path, start, stop in parts
            ]
            return self._gather(requests, [part[1:] for part in parts])
        paths, starts, stops = map(list, zip(*parts, strict=True))
        results: list[Any] = self.filesystem().cat_ranges(paths, starts, stops, on_error="return")
        return results

    def part_reader(self) -> Any:
        """Return a coroutine function of path, start and end, or None if the file system has no event loop.

        It must not read more than the range into memory, whatever the server sends.
        """
        return self._coroutine_function("cat_file")

    def call(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the file system; an asynchronous one is cancelled if the consumer stops."""
        coroutine = self._coroutine_function(operation)
        if coroutine is None:
            return getattr(self.filesystem(), operation)(*args, **kwargs)
        return self.run(partial(coroutine, *args, **kwargs))

    def run(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine on the file system's event loop; it is cancelled if the consumer stops."""
        return run_on_loop(self.filesystem().loop, make)

    def store(self, make: Callable[[IncomingFile], Coroutine[Any, Any, Any]], path: Path) -> Any:
        """Run a coroutine on the file system's event loop; this thread stores its output in a file.

        No file is created if it raises before writing anything.
        """
        return store_on_loop(self.filesystem().loop, make, path)

    def _coroutine_function(self, operation: str) -> Any:
        """Return an operation of an asynchronous file system, which can be cancelled, or None."""
        filesystem = self.filesystem()
        coroutine = getattr(filesystem, f"_{operation}", None)
        return coroutine if filesystem.async_impl and iscoroutinefunction(coroutine) else None

    def download(self, key: str, path: Path) -> None:
        with self.translated(key):
            filesystem, remote = self.filesystem(), self.path(key)
            # Synchronous file systems copy a directory as a directory, and report a file without
            # permission as missing; `info` reports both correctly.
            before = None
            if not filesystem.async_impl:
                before = filesystem.info(remote)
            if before and before["type"] == "directory":
                raise NotFound(f"{self.url_of(key)} does not exist")
            with conditional_reads(self.url_of(key)):
                self.call("get_file", remote, str(path))
            if not path.is_file():
                raise FileNotFoundError(path)
            # Most of them read a block per request.
            if before and (before["size"] or 0) > filesystem.blocksize:
                after = filesystem.info(remote)
                if (before["size"], version_of(before)) != (after["size"], version_of(after)):
                    raise replaced_error(self.url_of(key))

    def write(self, key: str, data: Buffer) -> None:
        with self.translated(key), self._appearing(key) as target:
            self.filesystem().pipe_file(target, bytes(data))

    def create(self, key: str, data: Buffer) -> None:
        if not self.can_create:
            super().create(key, data)
        with self.translated(key):
            try:
                self.call("pipe_file", self.path(key), bytes(data), mode="create")
            except Exception as error:
                if isinstance(error, FileExistsError) or status_of(error) == 412:
                    raise AlreadyExists(f"{self.url_of(key)} exists") from None
                raise

    def send_file(self, path: Path, key: str) -> None:
        with self._appearing(key) as target:
            self.put(path, target)

    def put(self, path: Path, target: str) -> None:
        """Copy a local file to a path of the file system."""
        self.filesystem().put_file(str(path), target)

    @contextmanager
    def _appearing(self, key: str) -> Iterator[str]:
        """Yield a path to write to, and rename it atomically to the object."""
        filesystem, target = self.filesystem(), self.path(key)
        if not _has_directories(filesystem):
            yield target
            return
        try:
            filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise StorageError(
                f"{self.url_of(key)}: a file has the name of its directory"
            ) from None
        if filesystem.isdir(target):
            raise StorageError(f"{self.url_of(key)}: a directory has this name")
        part = staging_path(target)
        try:
            yield part
            filesystem.mv(part, target)
        except BaseException:
            with suppress(Exception):
                filesystem.rm_file(part)
            raise

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            info = self.filesystem().info(self.path(key))
        if info.get("type") == "directory":
            raise NotFound(f"{self.url_of(key)} does not exist")
        if info["size"] is None:
            raise StorageError(f"{self.url_of(key)}: the server does not report its size")
        return ObjectInfo(key, int(info["size"]), version_of(info))

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        root = f"{self.client()[1]}/"
        for name, info in self.find_files(self.path(folder)).items():
            # fsspec also yields a file of the folder's name, and markers of empty directories.
            if name.startswith(root) and not name.endswith("/"):
                yield ObjectInfo(name[len(root) :], int(info["size"] or 0), version_of(info))

    def find_files(self, top: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the metadata of the files below a path of the file system, by their paths."""
        try:
            infos: Mapping[str, Mapping[str, Any]] = self.filesystem().find(top, detail=True)
        except FileNotFoundError as error:
            # The bucket is missing, or a file of this machine with credentials, not just a prefix.
            if status_of(error) is not None or error.filename:
                raise
            return {}
        return infos

    def delete(self, key: str) -> None:
        if not key:  # with it, some file systems would delete the bucket
            raise StorageError(f"{self.url}: an empty key names no object")
        with self.translated(key):
            filesystem, path = self.filesystem(), self.path(key)
            with suppress(FileNotFoundError, NotADirectoryError):
                if not (_has_directories(filesystem) and filesystem.isdir(path)):
                    filesystem.rm_file(path)


def _bytes(result: bytes | BaseException) -> bytes:
    if isinstance(result, BaseException):
        if status_of(result) == 416:  # the range starts beyond the end
            return b""
        raise result
    return bytes(result)


def _bytes_and_version(
    result: tuple[bytes, str] | BaseException,
) -> tuple[bytes, str | None]:
    return (_bytes(result), None) if isinstance(result, BaseException) else result


def version_of(info: Mapping[str, Any]) -> str:
    """Return the ETag or time of an object's metadata; empty if there is none."""
    values = (info.get(name) for name in _VERSIONS)
    version = next((value for value in values if value), "")
    # File systems may give the same ETag or time in another form in a listing: for Azure without quotes,
    # in memory as a timestamp.
    if isinstance(version, datetime) and version.tzinfo:
        version = version.timestamp()
    return str(version).strip('"')


def _has_directories(filesystem: Any) -> bool:
    while inner := getattr(filesystem, "fs", None):  # a wrapper, such as a cache
        filesystem = inner
    protocol = filesystem.protocol
    names = (protocol,) if isinstance(protocol, str) else protocol
    return _OBJECT_STORES.isdisjoint(names)


def _after_fork() -> None:
    # Those of closed storages, too, must not be collected here: see `leave_client_to_parent`.
    _inherited_filesystems.extend(_filesystems.values())
    if "fsspec.asyn" in sys.modules:
        sys.modules["fsspec.asyn"].reset_lock()  # older fsspec does not do it itself


os.register_at_fork(after_in_child=_after_fork)
