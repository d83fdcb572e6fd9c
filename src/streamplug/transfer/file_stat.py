"""Sizes and versions of many stored files, with few requests."""

from __future__ import annotations

from collections.abc import Collection
from os.path import commonprefix

from streamplug.errors import StorageError, Transient
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.transfer.pool import map_threads
from streamplug.transfer.retry import call_with_retries
from streamplug.types import ObjectInfo

MAX_STATS_IN_FLIGHT = 16
MAX_STATS = 64  # number of files up to which each gets a stat request instead of one listing


def file_versions(
    storage: Storage, names: Collection[str], retries: int
) -> list[tuple[str, int, str]]:
    """Return names, sizes and versions of files, sorted, without those whose metadata cannot be read.

    Many files take one listing. A storage that cannot list gives those of the index.json instead.

    Raises:
        Transient: If the storage cannot be reached.
    """
    requested = set(names)
    infos: list[ObjectInfo | None] = []
    if len(requested) > MAX_STATS:
        prefix = commonprefix(list(requested))  # noqa: RUF071 - keys may be listed by any prefix

        def list_requested() -> list[ObjectInfo | None]:
            return [info for info in storage.list(prefix) if info.key in requested]

        try:
            infos, requested = call_with_retries(list_requested, retries), set()
        except Transient:
            raise
        except StorageError:
            requested = {INDEX_NAME}

    def stat(name: str) -> ObjectInfo | None:
        try:
            return call_with_retries(lambda: storage.stat(name), retries)
        except Transient:
            raise
        except StorageError:  # it is missing, or the server does not support this
            return None

    infos += map_threads(stat, sorted(requested), MAX_STATS_IN_FLIGHT)
    return sorted((info.key, info.size, info.version) for info in infos if info is not None)
