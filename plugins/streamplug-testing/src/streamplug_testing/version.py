"""Versions of an object that is written again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamplug.errors import ObjectReplaced, Transient
from streamplug.interfaces import Storage
from streamplug_testing.equality import same

_TICK_SECONDS = 1.1
"""Some versions are times in seconds."""

_DOWNLOAD_BYTES = 24 << 20
"""More than the parts in which clients download."""


def check_versions(storage: Storage, put: Callable[[str, bytes], None]) -> None:
    """Check that the version of an object changes with its content, and is the same in a listing.

    Args:
        storage: A storage without objects.
        put: Creates or replaces an object of the storage.
    """
    versions: list[str] = []
    for data in (b"old", b"new"):
        if versions:
            time.sleep(_TICK_SECONDS)
        put("a/b", data)
        versions.append(storage.stat("a/b").version)
        assert [found.version for found in storage.list()] == versions[-1:]
    assert all(versions), "stat returns no version"
    assert versions[0] != versions[1], "the version did not change"


def check_parts(storage: Storage, put: Callable[[str, bytes], None]) -> None:
    """Check that parts of an object that is replaced between two reads are not of both versions.

    Args:
        storage: A storage without objects.
        put: Creates or replaces an object of the storage.
    """
    size, ranges = 300_000, [(0, 100_000), (100_000, 100_001), (200_000, 300_000)]
    old, new = b"o" * size, b"n" * size
    put("k", old)
    parts, version = storage.read_version("k", ranges[:2])
    assert version, "read_version returns no version"
    assert same([*map(bytes, parts)], [old[start:stop] for start, stop in ranges[:2]])
    past = (size - 1, size + 9)
    rest = storage.read_version("k", [ranges[2], past], version)
    assert same(([*map(bytes, rest[0])], rest[1]), ([old[200_000:], b"o"], version))
    time.sleep(_TICK_SECONDS)
    put("k", new)
    with pytest.raises(ObjectReplaced) as caught:
        storage.read_version("k", ranges[2:], version)
    assert storage.url_of("k") in str(caught.value)
    parts, version = storage.read_version("k", ranges)
    assert version, "read_version returns no version"
    assert same([*map(bytes, parts)], [new[start:stop] for start, stop in ranges])


def check_download(storage: Storage, put: Callable[[str, bytes], None], path: Path) -> None:
    """Check that a download of an object that is replaced meanwhile is of one version, or a `Transient`.

    Args:
        storage: A storage without objects.
        put: Creates or replaces an object of the storage.
        path: Where to download it; there is no such file.
    """
    old, new = b"o" * _DOWNLOAD_BYTES, b"n" * _DOWNLOAD_BYTES
    put("k", old)
    time.sleep(_TICK_SECONDS)
    has_ended = threading.Event()

    def replace_when_begun() -> None:
        while not (has_ended.wait(0.0005) or (path.exists() and path.stat().st_size)):
            pass
        put("k", new)

    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace_when_begun)
        try:
            storage.download("k", path)
        except Transient as error:
            assert storage.url_of("k") in str(error)  # noqa: PT017 - else branch
        else:
            data = path.read_bytes()
            assert data in (old, new), (
                f"{data.count(b'n')} of {len(data)} bytes are of another version"
            )
        finally:
            has_ended.set()
        replacing.result()
    storage.download("k", path)
    assert same(path.read_bytes(), new)
