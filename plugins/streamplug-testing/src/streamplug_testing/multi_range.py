"""Reading of several byte ranges, with errors raised instead of returned."""

from __future__ import annotations

from streamplug.errors import StorageError
from streamplug.interfaces import Storage


def read_parts_or_raise(storage: Storage, *parts: tuple[str, int, int]) -> list[bytes]:
    """Return the results of `read_many`.

    Raises:
        StorageError: The first error among the results.
    """
    data = []
    for part in storage.read_many(parts):
        if isinstance(part, StorageError):
            raise part
        data.append(bytes(part))
    return data
