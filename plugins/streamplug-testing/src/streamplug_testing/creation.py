"""Concurrent creation of one object, of which one call may succeed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamplug.errors import AlreadyExists, StorageError
from streamplug.interfaces import Storage

_WRITERS = 6


def can_create(storage: Storage) -> bool:
    """Return whether a storage supports `Storage.create`."""
    return bool(getattr(storage, "can_create", type(storage).create is not Storage.create))


def create_at_once(storage: Storage, key: str) -> list[bytes]:
    """Create an object from several threads at once; return what those wrote that succeeded.

    It is empty if the storage refuses `Storage.create`, which it then must do with a clear error.
    """
    if not can_create(storage):
        with pytest.raises(StorageError, match="cannot create") as refused:
            storage.create(key, b"first")
        assert not isinstance(refused.value, AlreadyExists)
        return []
    together = threading.Barrier(_WRITERS)

    def create(writer: int) -> bytes | None:
        data = b"writer %d" % writer
        together.wait(60)
        try:
            storage.create(key, data)
        except AlreadyExists:
            return None
        return data

    with ThreadPoolExecutor(_WRITERS) as pool:
        created = [data for data in pool.map(create, range(_WRITERS)) if data is not None]
    assert len(created) == 1
    return created
