"""Storages of remotes that may be unreachable, which are tried shortly; a local copy may replace them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from streamplug.errors import AccessDenied, NotFound, PluginError, StorageError, Transient
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin import local_path, strip_client
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.stall_timeout import (
    TIMEOUT_ADVICE,
    StalledError,
    StorageWrapper,
    TimeoutStorage,
    read_staged,
)
from streamplug.types import ObjectInfo

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

    read = read_range = read_ranges = read_version = serves_ranges = _refuse
    download = stat = list = _refuse
    write = upload = delete = _refuse


class ProbeStorage(StorageWrapper):
    """A storage with a short stall timeout; after a stall, requests to its server fail at once for a while.

    `failure` is the error of the last request if it says that the remote is unreachable, else None.
    """

    def __init__(self, storage: Storage, timeout: float) -> None:
        """Wrap `storage`; the stall timeout in seconds is at most `PROBE_SECONDS`."""
        self._timeout_storage = TimeoutStorage(storage, min(timeout, PROBE_SECONDS))
        super().__init__(self._timeout_storage)
        self._timeout = timeout
        server = "//".join(urlsplit(storage.url)[:2])
        self._server = server if local_path(storage.url) is None else storage.url
        self._has_answered = False
        self.failure: Exception | None = None

    def _run(self, key: str, operation: Callable[[], T]) -> T:  # noqa: ARG002 - all keys are alike
        since, text = _stalled.get(self._server, (float("-inf"), ""))
        if time.monotonic() - since < _STALLED_SERVER_SECONDS:
            self.failure = StorageError(text)
            raise self.failure
        self.failure = None
        try:
            result = operation()
        except StalledError as error:
            text = _error_text(error, self._timeout)
            _stalled[self._server] = time.monotonic(), text
            self.failure = StorageError(text)  # not Transient: no retry
            raise self.failure from error
        except NotFound:
            self._has_answered = True
            raise
        except (StorageError, PluginError) as error:
            self.failure = error
            raise
        self._has_answered = True
        return result

    def read(self, key: str) -> bytes:
        # Outside `_run`, where errors of the temporary file would be failures of the remote.
        self.failure = None
        return read_staged(self, key, self._download_sized)

    def _download_sized(self, key: str, path: Path, size: int | None) -> None:
        self._run(key, lambda: self._timeout_storage.download_sized(key, path, size))

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
        return self._run(prefix, lambda: iter([*self._storage.list(prefix)]))


def check_reachable(remote: Storage, key: str, local: Path, timeout: float, retries: int) -> None:
    """Check that a remote that was unreachable now answers for `key`, which need not exist.

    A directory of this machine answers if it exists: that of a disk that is not mounted does not. The stall
    timeout of each attempt, in seconds, is at most `PROBE_SECONDS`.
    """
    storage = TimeoutStorage(remote, min(timeout, PROBE_SECONDS))

    def request() -> None:
        try:
            storage.stat(key)
        except (NotFound, Transient, AccessDenied):
            raise
        except StorageError:  # some servers do not support stat
            storage.read_range(key, 0, 1)

    directory = local_path(remote.url)
    try:
        call_with_retries(request, retries)
    except (StorageError, PluginError) as error:
        is_missing = isinstance(error, NotFound)
        if is_missing and (directory is None or directory.is_dir()):
            return
        kind = type(error) if isinstance(error, StorageError) and not is_missing else StorageError
        raise kind(
            f"{remote.url_of(key)} is not in {local}, and the download failed: "
            f"{_error_text(error, timeout)}; make the remote reachable, or copy the file from "
            "another machine to that directory"
        ) from error


def _error_text(error: Exception, timeout: float) -> str:
    """Return the text of an error, without the advice to raise a timeout that `PROBE_SECONDS` bounds."""
    return str(error) if timeout < PROBE_SECONDS else str(error).replace(TIMEOUT_ADVICE, "")
