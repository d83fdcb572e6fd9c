"""Base class of storages that read and write through a client library."""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from streamplug.errors import AccessDenied, NotFound, StorageError, StreamplugError
from streamplug.interfaces import Storage
from streamplug.plugin_kit import STAGING_PREFIX, Scope, check, current, inside
from streamplug.types import Buffer, ObjectInfo
from streamplug_fsspec.error_mapping import client_error
from streamplug_fsspec.rate_limiter import (
    NoTurnError,
    RateLimiter,
    check_rate_limit,
    limiting,
    make_rate_limiter,
)
from streamplug_fsspec.shared_clients import forget_client, share_client

T = TypeVar("T")
P = TypeVar("P")

MAX_CONCURRENT_READS = 8
"""Default of the option `max_concurrency`."""

_opening = threading.Lock()
_with_client: weakref.WeakSet[ClientStorage] = weakref.WeakSet()
_inherited_clients: list[Any] = []


class ClientStorage(Storage):
    """A storage whose client is opened once per process, on first use.

    Attributes:
        renews_credentials: Whether a new client, with the credentials of then, is opened after the old one's
            were refused.
        limits_requests: Whether each request of the client passes through `rate_limiter`.
    """

    renews_credentials: ClassVar[bool] = False
    limits_requests: ClassVar[bool] = False

    def __init__(self, url: str, *, rate_limit: float | bool | None = None, **options: Any) -> None:
        """Set the location and its options; `rate_limit` is as for `make_rate_limiter`."""
        super().__init__(url, **options)
        self._client: Any = None
        self._rate_limit = rate_limit
        check_rate_limit(self.url, rate_limit, can_limit=self.limits_requests)

    @property
    def request_place(self) -> str:
        """What a server counts requests for: bucket and endpoint."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]} {self.endpoint}".rstrip()

    @cached_property
    def rate_limiter(self) -> RateLimiter:
        """The limiter that requests pass through."""
        return make_rate_limiter(
            self.request_place, self._rate_limit, can_limit=self.limits_requests
        )

    def __getstate__(self) -> dict[str, Any]:
        # Connections, threads and event loops cannot be used in another process.
        return {**self.__dict__, "_client": None}

    def open_client(self) -> Any:
        """Return a new client; other threads wait meanwhile."""

    def close_client(self, client: Any) -> None:
        """Close a client; by default the garbage collector does."""

    def translate(self, error: Exception, url: str) -> StorageError | None:
        """Return the storage error for an exception of the client, or None to use the general rules."""
        return None

    def client(self) -> Any:
        """Return this process's client, opening it on first use."""
        client = self._client
        if client is None:
            with _opening:
                client = self._client or self.open_client()
                self._client = client
                _with_client.add(self)
        return client

    def close(self) -> None:
        if self._client is not None:
            self.drop_client(self._client)

    def drop_client(self, client: Any) -> None:
        """Close a client; the next operation opens a new one."""
        with _opening:
            if self._client is client:
                self._client = None
        self.close_client(client)

    def share(self, make: Callable[[], T], *key: object) -> T:
        """Return a client that storages of the same class, options and `key` share while they use it."""
        cls = type(self)
        place = cls.__module__, cls.__qualname__
        return share_client((place, sorted(self._options.items()), key), make)

    def renew_client(self) -> None:
        """Have the next operation open a new client; others that use this one end with it."""
        with _opening:
            client, self._client = self._client, None
        forget_client(client)

    def leave_client_to_parent(self) -> None:
        """Forget a client that was inherited by fork, without closing it.

        It has the parent's threads, event loop and sockets. It must be neither used nor collected here:
        closing it would close the parent's connections.
        """
        _inherited_clients.append(self._client)
        self._client = None

    @contextmanager
    def translated(self, key: str) -> Iterator[None]:
        """Convert all exceptions of the block, which makes requests, to storage errors about one object."""
        try:
            with limiting(self.rate_limiter):
                yield
        except NoTurnError as error:
            raise NoTurnError(self.url_of(key), error.retry_after) from None
        except StreamplugError:
            raise
        except Exception as error:  # noqa: BLE001 - clients raise anything
            url = self.url_of(key)
            # `from None`: the client's text may contain signed URLs or keys.
            raise self._convert(error, url) from None

    def _convert(self, error: Exception, url: str) -> StorageError:
        """Return the storage error for an exception of the client, which is opened anew if it was refused."""
        converted = self.translate(error, url) or client_error(error, url)
        is_refused = isinstance(converted, AccessDenied) and not converted.may_be_missing
        if self.renews_credentials and is_refused:
            self.renew_client()
        return converted

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """Return several ranges, each by `read_range` in a thread; `Cancelled` if the consumer stops."""
        limit = self._options.get("max_concurrency") or MAX_CONCURRENT_READS
        return read_concurrently(lambda part: self.read_range(key, *part), ranges, limit)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        with self.translated(folder):
            objects = sorted(self.objects(folder), key=lambda o: o.key)
        return (
            o
            for o in objects
            if o.key.startswith(prefix) and not o.key.rpartition("/")[2].startswith(STAGING_PREFIX)
        )

    @abstractmethod
    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all objects below a folder, in any order; none if it does not exist."""

    def upload(self, path: Path, key: str) -> None:
        if not path.is_file():
            raise NotFound(f"{path} does not exist: it was to be uploaded to {self.url_of(key)}")
        with self.translated(key):
            self.send_file(path, key)

    @abstractmethod
    def send_file(self, path: Path, key: str) -> None:
        """Create or replace an object with the content of an existing local file."""


def read_concurrently(read: Callable[[P], T], ranges: Sequence[P], max_threads: int) -> list[T]:
    """Return what `read` returns for each range, called on up to `max_threads` threads, of which this is one.

    Raises:
        Cancelled: If the consumer stops.
        Exception: The error of the first range in the list that fails; no calls start after a failure.
    """
    scope, pending = current() or Scope(), deque(enumerate(ranges))
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        with inside(scope):
            while pending:
                with suppress(IndexError):  # another thread has taken the last one
                    number, part = pending.popleft()
                    try:
                        check()
                        results[number] = read(part)
                    except BaseException as error:  # noqa: BLE001 - raised below
                        errors[number] = error
                        pending.clear()

    # Not an executor's: at exit, the interpreter would wait for a request that hangs.
    threads = [
        threading.Thread(
            target=copy_context().run, args=(work,), name="streamplug-range", daemon=True
        )
        for _ in range(min(len(ranges), max_threads) - 1)
    ]
    with suppress(RuntimeError):  # no more threads can be started: those that were do all
        for thread in threads:
            thread.start()
    try:
        work()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    finally:
        pending.clear()
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # breaks the reference cycle between the error and this frame
    return [results[number] for number in range(len(ranges))]


def _after_fork() -> None:
    global _opening, _with_client
    # The inherited lock may be locked, and the set inconsistent.
    for storage in list(_with_client):
        storage.leave_client_to_parent()
    _opening, _with_client = threading.Lock(), weakref.WeakSet()


os.register_at_fork(after_in_child=_after_fork)
