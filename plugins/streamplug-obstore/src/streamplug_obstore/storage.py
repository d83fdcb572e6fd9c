"""Base class of the obstore storages."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from streamplug_fsspec import (
    ClientStorage,
    make_hedges,
    one_version,
    preallocate,
    run_on_loop,
    write_chunks,
)

from streamplug.errors import AlreadyExists, StorageError
from streamplug.interfaces import replaced_error
from streamplug.types import Buffer, ObjectInfo
from streamplug_obstore.client import obstore_module
from streamplug_obstore.error_mapping import (
    begins_beyond_end,
    ignores_ranges,
    is_passing,
    refusal_of,
    status_of,
    storage_error,
)
from streamplug_obstore.options import RETRIES

MAX_GAP_BYTES = 2**15
"""Ranges with at most this many bytes between them are coalesced."""

_MIN_CHUNK_BYTES = 1 << 18
"""Minimum bytes of a download chunk; obstore's default takes minutes on a slow connection."""

_PREFIX = "obstore+"


class Stores:
    """The stores of obstore for one location.

    Attributes:
        repeating: One that repeats requests which fail.
        single: One that repeats none.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.repeating, self.single = make(RETRIES), make(0)


class ObstoreStorage(ClientStorage):
    """Objects below a URL, through obstore.

    Attributes:
        ways: How credentials can be passed, for errors.
    """

    ways: ClassVar[str] = ""
    renews_credentials = True
    limits_requests = True

    @property
    def place(self) -> tuple[str, ...]:
        """What the store depends on besides the options: bucket and host, or the location."""
        return (self._location,)

    def __init__(self, url: str, *, hedge: bool | None = None, **options: Any) -> None:
        super().__init__(url.removeprefix(_PREFIX), **options)
        self._hedges = make_hedges(self.url, hedge, can_cancel=True)
        self._prefix = ""

    @abstractmethod
    def make_store(self, stores: Any, retries: int) -> Any:
        """Return a new obstore store.

        Args:
            stores: The module ``obstore.store``.
            retries: How often it repeats a request.
        """

    def open_client(self) -> Stores:
        make = partial(self.make_store, obstore_module().store)
        return self.share(partial(Stores, make), *self.place)

    def translate(self, error: Exception, url: str) -> StorageError:
        self.rate_limiter.note(status_of(error), code=refusal_of(error).code)
        return storage_error(error, url, self.ways)

    def _reading_store(self) -> Any:
        """Return the store for a read: where the server refuses requests, obstore would hide some of that."""
        stores = self.client()
        return stores.single if self.rate_limiter.is_limiting else stores.repeating

    @contextmanager
    def _requesting(self, key: str) -> Iterator[None]:
        """Make a request for an object in the block, as `translated`."""
        with self.translated(key):
            self.rate_limiter.acquire_in_thread()
            yield

    def _gather(
        self, requests: Sequence[Callable[[], Awaitable[Any]]], sizes: Sequence[int]
    ) -> list[Any]:
        """Return what each request for a number of bytes returns, or its exception."""
        from fsspec.asyn import get_loop

        limiter = self.rate_limiter

        async def send(make: Callable[[], Awaitable[Any]]) -> Any:
            await limiter.acquire()
            return await make()

        makers = [partial(send, request) for request in requests]
        gather = partial(self._hedges.gather, makers, sizes, is_limited=limiter.is_limiting)
        results: list[Any] = run_on_loop(get_loop(), gather)
        return results

    def _path(self, key: str) -> str:
        self.check_key(key)
        if not key:
            raise StorageError(f"{self.url}: an empty key names no object")
        return self._prefix + key

    # -- reading ------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with self._requesting(key):
            data: bytes = (
                obstore_module().get(self._reading_store(), self._path(key)).bytes().to_bytes()
            )
            return data

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        with self._requesting(key):
            try:
                path = self._path(key)
                part = obstore_module().get_range(
                    self._reading_store(), path, start=start, end=stop
                )
                data: bytes = part.to_bytes()
            except Exception as error:
                if begins_beyond_end(error):
                    return b""
                if ignores_ranges(error):
                    return self.read(key)[start:stop]
                raise
            return data

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        merged = _merge(ranges)
        if not merged:
            return [b""] * len(ranges)
        # Not `get_ranges`, which sends at most ten requests at once, and cannot be cancelled.
        results = self._request_parts([(key, start, stop) for start, stop in merged])
        if _ignore_ranges(results):
            results = list(super().read_ranges(key, merged))
        views = []
        for result in results:
            part = self._part(key, result)
            if isinstance(part, StorageError):
                raise part
            views.append(memoryview(part))
        starts = [start for start, _ in merged]
        return [_cut(start, stop, starts, views) for start, stop in ranges]

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        with self.translated(key):
            get, store, path = obstore_module().get_async, self._reading_store(), self._path(key)

            async def one(start: int, stop: int) -> tuple[Buffer, str]:
                options: dict[str, Any] = {"range": (start, stop)}
                if version.startswith('"'):  # a strong ETag; servers match no other
                    options["if_match"] = version
                response = await get(store, path, options=options)
                return memoryview(await response.bytes_async()), version_of(response.meta)

            # Not `get_ranges`, which reads adjacent ranges as one.
            sizes = [stop - start for start, stop in ranges]
            results = self._gather([partial(one, *each) for each in ranges], sizes)
            errors = [result for result in results if isinstance(result, Exception)]
            if any(map(ignores_ranges, errors)):
                return [], ""  # each range would transfer the whole object
            for error in errors:
                if type(error).__name__ == "PreconditionError":
                    raise replaced_error(self.url_of(key))
                if not begins_beyond_end(error):
                    raise error
        parts = [(b"", None) if isinstance(part, Exception) else part for part in results]
        return one_version(parts, version, self.url_of(key))

    @property
    def supports_read_many(self) -> bool:
        return True

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        results = self._request_parts(parts)
        if _ignore_ranges(results):
            return super().read_many(parts)
        return [self._part(key, part) for (key, _, _), part in zip(parts, results)]

    def _request_parts(self, parts: Sequence[tuple[str, int, int]]) -> list[Any]:
        """Return the answers, or the errors of the client, to a range request for each part."""
        if not parts:
            return []
        with self.translated(parts[0][0]):
            get, store = obstore_module().get_range_async, self._reading_store()

            async def one(key: str, start: int, stop: int) -> Any:
                return await get(store, self._path(key), start=start, end=stop)

            sizes = [stop - start for _, start, stop in parts]
            return self._gather([partial(one, *part) for part in parts], sizes)

    def _part(self, key: str, result: Any) -> Buffer | StorageError:
        if isinstance(result, Exception) and begins_beyond_end(result):
            return b""
        try:
            with self.translated(key):
                if isinstance(result, BaseException):
                    raise result
        except StorageError as error:
            return error
        return memoryview(result)

    def download(self, key: str, path: Path) -> None:
        with self._requesting(key):
            response = obstore_module().get(self._reading_store(), self._path(key))
            with path.open("wb", buffering=0) as file:
                preallocate(file, response.meta["size"])
                write_chunks(file, response.stream(min_chunk_size=_MIN_CHUNK_BYTES))

    def stat(self, key: str) -> ObjectInfo:
        with self._requesting(key):
            return _info(key, obstore_module().head(self._reading_store(), self._path(key)))

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        below = self._path(folder) if folder else self._prefix.rstrip("/")
        self.rate_limiter.acquire_in_thread()
        objects = [
            _info(meta["path"].removeprefix(self._prefix), meta)
            for meta in obstore_module().list(self._reading_store(), prefix=below or None).collect()
            if meta["path"].startswith(self._prefix)
        ]
        folders = {o.key[:at] for o in objects for at in _slashes(o.key)}
        # The directory marker "a/b/" is listed as "a/b".
        return (o for o in objects if o.size or o.key not in folders)

    # -- writing ------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        with self._requesting(key):
            obstore_module().put(self.client().repeating, self._path(key), bytes(data))

    def create(self, key: str, data: Buffer) -> None:
        errors = obstore_module().exceptions
        with self._requesting(key):
            try:
                obstore_module().put(
                    self.client().repeating, self._path(key), bytes(data), mode="create"
                )
            except (errors.AlreadyExistsError, errors.PreconditionError) as error:
                if is_passing(error):  # status 409 of S3, where the object need not exist
                    raise
                raise AlreadyExists(f"{self.url_of(key)} exists") from None

    def send_file(self, path: Path, key: str) -> None:
        self.rate_limiter.acquire_in_thread()
        obstore_module().put(self.client().repeating, self._path(key), path)

    def delete(self, key: str) -> None:
        with self._requesting(key):
            try:
                obstore_module().delete(self.client().repeating, self._path(key))
            except FileNotFoundError:
                return


def _ignore_ranges(results: Sequence[Any]) -> bool:
    return any(isinstance(result, Exception) and ignores_ranges(result) for result in results)


def _slashes(key: str) -> Iterator[int]:
    return (at for at, character in enumerate(key) if character == "/")


def _merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(part for part in ranges if part[0] < part[1]):
        if merged and start <= merged[-1][1] + MAX_GAP_BYTES:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _cut(start: int, stop: int, starts: Sequence[int], parts: Sequence[memoryview]) -> Buffer:
    if stop <= start:
        return b""
    part = bisect_right(starts, start) - 1
    return parts[part][start - starts[part] : stop - starts[part]]


def _info(key: str, meta: Mapping[str, Any]) -> ObjectInfo:
    # For Azure, the ETag of one object is in quotes, and those of a listing are not.
    return ObjectInfo(key, int(meta["size"]), version_of(meta).strip('"'))


def version_of(meta: Mapping[str, Any]) -> str:
    """Return the ETag or time of an object's metadata; empty if the server sent neither."""
    # obstore fills in 1970 for a missing time.
    time = meta.get("last_modified")
    return str(meta.get("e_tag") or (time if time and time.timestamp() else ""))
