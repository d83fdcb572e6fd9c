"""Versions of an object that is written again."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamplug.interfaces import Storage


def check_versions(storage: Storage, put: Callable[[str, bytes], None]) -> None:
    """Check that the version of an object changes with its content, and is the same in a listing.

    Args:
        storage: A storage without objects.
        put: Creates or replaces an object of the storage.
    """
    versions: list[str] = []
    for data in (b"old", b"new"):
        if versions:
            time.sleep(1.1)  # some versions are times in seconds
        put("a/b", data)
        versions.append(storage.stat("a/b").version)
        assert [found.version for found in storage.list()] == versions[-1:]
    assert all(versions), "stat returns no version"
    assert versions[0] != versions[1], "the version did not change"
