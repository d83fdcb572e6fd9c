"""Storages with short timeouts for remotes with a local copy, and storages that cannot be opened."""

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
from streamplug.transfer.delegating_storage import DelegatingStorage
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.timeout import TimeoutStorage
from streamplug.transfer.watchdog import StalledError
from streamplug.types import Buffer, ObjectInfo

T = TypeVar("T")

PROBE_SECONDS = 10.0  # upper bound of the stall timeout where a local copy of the index exists
PROBE_RETRIES = 1
_STALLED_SERVER_SECONDS = 60.0  # time after a stall during which requests fail immediately
_stalled: dict[str, tuple[float, str]] = {}  # time and error text of each server's last stall


class UnavailableStorage(Storage):
    """A storage whose plugin is missing or fails: each operation raises the error of opening it."""

    def __init__(self, url: str, error: PluginError) -> None:
        super().__init__(strip_client(url))
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error

    read = read_range = read_ranges = serves_ranges = download = stat = list = _refuse
    write = upload = delete = _refuse


class ProbeStorage(DelegatingStorage):
    """A storage with a short stall timeout; after a stall, requests to its server fail at once for a while.

    `failure` is the error of the last request if it says that the remote is unreachable, else None.
    """

    def __init__(self, storage: Storage, timeout: float) -> None:
        """Wrap `storage`; the stall timeout in seconds is at most `PROBE_SECONDS`."""
        super().__init__(TimeoutStorage(storage, min(timeout, PROBE_SECONDS)))
        self._server = "//".join(urlsplit(storage.url)[:2])
        self._has_answered = False
        self.failure: Exception | None = None

    def _probe(self, operation: Callable[[], T]) -> T:
        since, text = _stalled.get(self._server, (float("-inf"), ""))
        if time.monotonic() - since < _STALLED_SERVER_SECONDS:
            self.failure = StorageError(text)
            raise self.failure
        try:
            result = operation()
        except StalledError as error:
            _stalled[self._server] = time.monotonic(), str(error)
            self.failure = StorageError(str(error))  # not Transient: no retry
            raise self.failure from error
        except NotFound:
            self._has_answered, self.failure = True, None
            raise
        except (StorageError, PluginError) as error:
            self.failure = error
            raise
        self._has_answered, self.failure = True, None
        return result

    def read(self, key: str) -> bytes:
        return self._probe(lambda: self._storage.read(key))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._probe(lambda: self._storage.read_range(key, start, stop))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._probe(lambda: self._storage.read_ranges(key, ranges))

    def serves_ranges(self, key: str) -> bool:
        return self._probe(lambda: self._storage.serves_ranges(key))

    def download(self, key: str, path: Path) -> None:
        self._probe(lambda: self._storage.download(key, path))

    def stat(self, key: str) -> ObjectInfo:
        return self._probe(lambda: self._storage.stat(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        # A listing has no timeout, as a long one shows no progress: stat one object first.
        if not self._has_answered:
            try:
                self.stat(INDEX_NAME)
            except Transient:
                raise
            except StorageError as error:
                if error is self.failure and error.__cause__ is not None:
                    raise
        return self._probe(lambda: iter([*self._storage.list(prefix)]))


def check_reachable(remote: Storage, key: str, local: Path, timeout: float) -> None:
    """Check that a remote that was unreachable now answers for `key`, which need not exist."""
    storage = ProbeStorage(remote, timeout)
    try:
        try:
            call_with_retries(lambda: storage.stat(key), PROBE_RETRIES)
        except (NotFound, Transient, AccessDenied):
            raise
        except StorageError:  # some servers do not support stat
            storage.read_range(key, 0, 1)
    except NotFound:
        return
    except (StorageError, PluginError) as error:
        kind = type(error) if isinstance(error, StorageError) else StorageError
        raise kind(
            f"{remote.url_of(key)} is not in {local}, and the download failed: {error}; make the remote "
            "reachable, or copy the file there from where it is"
        ) from error
