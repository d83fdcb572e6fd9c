"""Storages that are asked only briefly, as there is a local copy: and those that cannot be asked at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from streamplug.errors import AccessDenied, NotFound, PluginError, StorageError, Transient
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin.location import strip_client
from streamplug.transfer.retry import retrying
from streamplug.transfer.timeout import patient
from streamplug.transfer.watchdog import StalledError
from streamplug.types import Buffer, ObjectInfo

T = TypeVar("T")

PROBE_SECONDS = 10.0
"""Seconds that a remote is waited for which nothing comes from, where there is a local copy of the index."""
PROBE_RETRIES = 1
_STALL_MEMORY_SECONDS = 60.0
"""Seconds for which a server that did not answer is not waited for again."""

_stalled: dict[str, tuple[float, str]] = {}
"""When a server did not answer, and what that was told as."""


class _Unavailable(Storage):
    """A location for which the plugin lacks or fails: each operation raises the error that said so."""

    def __init__(self, url: str, error: PluginError) -> None:
        super().__init__(strip_client(url))
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error

    read = read_range = read_ranges = serves_ranges = download = stat = list = _refuse
    write = upload = delete = _refuse


def unavailable(url: str, error: PluginError) -> Storage:
    """Return a storage of which each operation raises the error that opening its location raised."""
    return _Unavailable(url, error)


class _Probed(Storage):
    """A storage of which the first request that stalls is the last: later ones fail at once.

    Attributes:
        failure: The last error that says that the remote cannot be asked; None while it answers.
    """

    def __init__(self, storage: Storage, timeout: float) -> None:
        super().__init__(storage.url)
        self._storage = patient(storage, min(timeout, PROBE_SECONDS))
        self._server = "//".join(urlsplit(storage.url)[:2])
        self._answered = False
        self.failure: Exception | None = None

    def _ask(self, operation: Callable[[], T]) -> T:
        since, text = _stalled.get(self._server, (float("-inf"), ""))
        if time.monotonic() - since < _STALL_MEMORY_SECONDS:
            self.failure = StorageError(text)
            raise self.failure
        try:
            found = operation()
        except StalledError as error:
            _stalled[self._server] = time.monotonic(), str(error)
            self.failure = StorageError(str(error))  # not Transient: it is not asked again
            raise self.failure from error
        except NotFound:
            self._answered = True
            raise
        except (StorageError, PluginError) as error:
            self.failure = error
            raise
        self._answered = True
        return found

    def url_of(self, key: str) -> str:
        return self._storage.url_of(key)

    def read(self, key: str) -> bytes:
        return self._ask(lambda: self._storage.read(key))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._ask(lambda: self._storage.read_range(key, start, stop))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._ask(lambda: self._storage.read_ranges(key, ranges))

    def serves_ranges(self, key: str) -> bool:
        return self._ask(lambda: self._storage.serves_ranges(key))

    def download(self, key: str, path: Path) -> None:
        self._ask(lambda: self._storage.download(key, path))

    def stat(self, key: str) -> ObjectInfo:
        return self._ask(lambda: self._storage.stat(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        # A long list may take its time, but not that of a server that is away.
        if not self._answered:
            try:
                self.stat(INDEX_NAME)
            except Transient:
                raise
            except StorageError as error:
                if error is self.failure and error.__cause__ is not None:
                    raise
        return self._ask(lambda: iter([*self._storage.list(prefix)]))

    def write(self, key: str, data: Buffer) -> None:
        self._storage.write(key, data)

    def upload(self, path: Path, key: str) -> None:
        self._storage.upload(path, key)

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def close(self) -> None:
        self._storage.close()


def probed(storage: Storage, timeout: float) -> _Probed:
    """Return a storage that is waited for only briefly: after a request that stalls, all fail at once.

    Args:
        storage: The remote.
        timeout: Seconds after which a request fails during which nothing arrived.
    """
    return _Probed(storage, timeout)


def check_online(remote: Storage, key: str, local: Path, timeout: float) -> None:
    """Check that a file can be had from a remote that could not be reached before.

    Args:
        remote: The remote.
        key: The file, which may be missing there: whoever downloads it says so.
        local: The cache that lacks it.
        timeout: Seconds after which a request fails during which nothing arrived.

    Raises:
        StorageError: If it still cannot be reached.
    """
    asked = probed(remote, timeout)
    try:
        try:
            retrying(lambda: asked.stat(key), PROBE_RETRIES)
        except (NotFound, Transient, AccessDenied):
            raise
        except StorageError:  # some servers do not tell sizes
            asked.read_range(key, 0, 1)
    except NotFound:
        return
    except (StorageError, PluginError) as error:
        kind = type(error) if isinstance(error, StorageError) else StorageError
        raise kind(
            f"{remote.url_of(key)} is not in {local}, and could not be fetched: {error}; make the remote "
            "reachable, or copy the file there from where it is"
        ) from error
