"""Files of writers' outputs, which are data only through an index.

Writers give the files of shards common names, and write the index last. Without one, the writer may have been
stopped, and files are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from functools import cache, partial

from streamplug.errors import NotFound
from streamplug.index import INDEX_NAME, is_shard_name, normalize_basename
from streamplug.interfaces import Storage
from streamplug.source import list_manifests
from streamplug.transfer import call_with_retries

PLAN_NAME = "parts.json"
"""First file of a data set in parts, which identifies their inputs; it stays beside the index."""

_MAX_PLAN_BYTES = 1 << 20
_PART_FOLDER = re.compile(r"part-[0-9]{5,}(-[0-9a-f]{12})?")


def check_writer_output(
    storage: Storage, keys: Collection[str], retries: int, *, named: Collection[str] = ()
) -> set[str]:
    """Check that files are not of an unfinished data set; return those that are state, and no data.

    Args:
        storage: Storage of the files.
        keys: The files.
        retries: Number of retries of failed requests.
        named: Those that were named one by one, which may have the names of shards.

    Raises:
        NotFound: If a file is of a data set that its writer has not finished, or has not finished extending.
    """
    outputs, manifests = _Outputs(storage, retries), list_manifests()
    state = set()
    for key in keys:
        folder, _, name = key.rpartition("/")
        if name in manifests and outputs.has_manifest(folder, name):
            state.add(key)
        elif name == PLAN_NAME and outputs.has_plan(folder):
            outputs.check_index(folder)
            state.add(key)
        elif is_shard_name(name) and key not in named:
            outputs.check_shard(folder, key)
    return state


class _Outputs:
    """Plans and indexes in the folders of a storage."""

    def __init__(self, storage: Storage, retries: int) -> None:
        self._storage, self._retries = storage, retries
        self.has_plan = cache(self._has_plan)
        self._indexed_names = cache(self._read_indexed_names)

    def has_manifest(self, folder: str, name: str) -> bool:
        """Return whether a file is the manifest of a table format."""
        head = self._read_head(_join(folder, name)) or b""
        with suppress(ValueError, RecursionError):
            return "format_version" in json.loads(head)
        return False

    def _has_plan(self, folder: str) -> bool:
        """Return whether a folder has the plan of a data set in parts."""
        head = self._read_head(_join(folder, PLAN_NAME))
        if head is None:
            return False
        if not head.strip(b"\0") or head.startswith(b'{"removed": ['):
            return True  # after a loss of power, or a removal that was cut off
        with suppress(ValueError, RecursionError):
            plan = json.loads(head)
            return isinstance(plan, dict) and (
                "parts_digest" in plan or plan.keys() == {"dataframe", "version"}
            )
        return False

    def check_index(self, folder: str) -> None:
        """Raise NotFound unless a folder has an index."""
        if self._indexed_names(folder) is None:
            url = self._storage.url_of(folder) if folder else self._storage.url
            raise NotFound(
                f"{self._storage.url_of(_join(folder, INDEX_NAME))} does not exist, and {url} has files of a "
                "data set: its writer has not finished; write it again, or repeat the call that began it. "
                "Files that are whole are read if each is named, as by shard.{00000..00009}.tar"
            )

    def check_shard(self, folder: str, key: str) -> None:
        """Raise NotFound unless a file is in the next index in or above its folder."""
        parent, _, name = folder.rpartition("/")
        if _PART_FOLDER.fullmatch(name) and self.has_plan(parent):
            self.check_index(parent)
        above = folder
        while (names := self._indexed_names(above)) is None and above:
            above = above.rpartition("/")[0]
        if names is None:
            self.check_index(folder)
        elif names and key not in names:
            raise NotFound(
                f"{self._storage.url_of(key)} is not in {self._storage.url_of(_join(above, INDEX_NAME))}, as "
                "a writer leaves it that has not finished appending: read the data set by its index, or "
                "remove the file"
            )

    def _read_indexed_names(self, folder: str) -> set[str] | None:
        """Return the files that an index names; none if it is of another library, None without an index."""
        read = partial(self._storage.read, _join(folder, INDEX_NAME))
        try:
            data = call_with_retries(read, self._retries)
        except NotFound:
            return None
        names: set[str] = set()
        with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
            for entry in json.loads(data)["shards"]:
                files = [file for file in entry.values() if isinstance(file, dict)]
                names.update(
                    _join(folder, str(normalize_basename(file["basename"])))
                    for file in files
                    if "basename" in file
                )
        return names

    def _read_head(self, key: str) -> bytes | None:
        read = partial(self._storage.read_range, key, 0, _MAX_PLAN_BYTES)
        try:
            return call_with_retries(read, self._retries)
        except NotFound:
            return None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
