"""Clients that several storages of a process share: their connections, and what they know of credentials."""

from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, TypeVar

T = TypeVar("T")

_shared: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
_inherited: list[Any] = []


def share_client(key: object, make: Callable[[], T]) -> T:
    """Return the client that was made with an equal key and environment and is in use, else a new one.

    Args:
        key: What the client depends on, besides the environment. If it cannot be pickled, as a credential
            object, the client is not shared.
        make: Returns a new client.
    """
    try:
        content = pickle.dumps((key, sorted(os.environ.items())))
    except Exception:  # noqa: BLE001 - objects of the user raise anything
        return make()
    digest = blake2b(content).digest()  # the content has secrets
    client: T | None = _shared.get(digest)
    if client is None:
        client = make()
        _shared[digest] = client
    return client


def forget_client(client: object) -> None:
    """Have no further storage use a client; those that do keep it."""
    for digest, other in list(_shared.items()):
        if other is client:
            _shared.pop(digest, None)


def file_times(*paths: str) -> list[int]:
    """Return when files with credentials were changed, for the key of a client; 0 for missing ones."""
    times = []
    for path in paths:
        times.append(0)
        with suppress(OSError):
            times[-1] = os.stat(os.path.expanduser(path)).st_mtime_ns  # noqa: PTH111, PTH116 - no error without a home
    return times


def _after_fork() -> None:
    # They must be neither used nor collected here: see `ClientStorage.leave_client_to_parent`.
    _inherited.extend(_shared.values())
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)
