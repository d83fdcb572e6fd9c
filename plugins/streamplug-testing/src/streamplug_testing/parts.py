"""Reads parts of several objects as tests like to have them."""

from __future__ import annotations

from streamplug.errors import StorageError
from streamplug.interfaces import Storage


def parts_of(storage: Storage, *parts: tuple[str, int, int]) -> list[bytes]:
    """Return what `read_many` does.

    Raises:
        StorageError: The first that stands in place of a part.
    """
    found = []
    for part in storage.read_many(parts):
        if isinstance(part, StorageError):
            raise part
        found.append(bytes(part))
    return found
