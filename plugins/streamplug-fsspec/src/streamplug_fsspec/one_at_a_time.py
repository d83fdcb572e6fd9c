"""File systems of which one thread at a time calls a method."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

_SHARING = frozenset(("ftp", "libarchive", "tar"))
"""Protocols whose reads share one connection, or the position in one file: threads would get each other's
bytes."""


def shares_position(filesystem: Any) -> bool:
    """Return whether threads must take turns with a file system, or one that it wraps."""
    while filesystem is not None:
        protocol = filesystem.protocol
        if not _SHARING.isdisjoint((protocol,) if isinstance(protocol, str) else protocol):
            return True
        filesystem = getattr(filesystem, "fs", None)
    return False


class OneAtATime:
    """A file system whose methods threads call in turn."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem, self._turn = filesystem, threading.RLock()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._filesystem, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(*args, **kwargs)
