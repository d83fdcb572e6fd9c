"""Grouping of many files into shards, without copying them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import xxhash

from streamplug.errors import NotFound
from streamplug.index import INDEX_NAME
from streamplug.interfaces import FileSelection, Storage
from streamplug.plugin_kit.manifest import ShardManifest
from streamplug.scan.glob import FileSet, compile_glob, glob_may_contain, glob_prefix, is_glob
from streamplug.scan.listing import reject_directory_links
from streamplug.transfer.file_lock import STATE_DIR
from streamplug.transfer.retry import call_with_retries
from streamplug.types import ObjectInfo

MULTIFILE_PREFIX = "_bundles/"
"""Prefix of the names of such shards, and of the files stored beside an index."""

_MOST_FILES = 256
_MOST_BYTES = 32 << 20  # a larger file is a shard of its own


@dataclass(frozen=True, slots=True)
class FileTree:
    """Files sorted by name, how often each is listed, and a digest of names, sizes, versions and counts."""

    files: Sequence[ObjectInfo]
    counts: Sequence[int]
    digest: str

    def repeated(self, chosen: FileSelection) -> FileSelection:
        """Repeat the samples as often as their files are listed: one pass over all, then the next."""
        most = max((self.counts[number] for number in chosen.numbers), default=0)
        if most < 2:
            return chosen
        places = [
            place
            for times in range(most)
            for place, number in enumerate(chosen.numbers)
            if self.counts[number] > times
        ]
        labels = chosen.labels
        return replace(
            chosen,
            numbers=[chosen.numbers[place] for place in places],
            labels=None if labels is None else [labels[place] for place in places],
        )


def list_tree(storage: Storage, files: FileSet, retries: int) -> FileTree:
    """List the files of a file set.

    Raises:
        NotFound: If there are none.
        ConfigError: If one is a link to a directory.
    """
    found: dict[str, ObjectInfo] = {}
    counts: Counter[str] = Counter()
    for part in files.parts:
        start = glob_prefix(part) if is_glob(part) else part
        for each in call_with_retries(partial(_listed, storage, start), retries):
            if _meant(each.key, part):
                found[each.key] = each
                counts[each.key] += 1
            elif is_glob(part) and glob_may_contain(part, each.key):
                reject_directory_links(storage, [each.key])
    reject_directory_links(storage, found)
    if not found:
        raise NotFound(
            f"{storage.url}: there are no files"
            + ("" if files.whole else f" that match {', '.join(files.parts)[:200]}")
            + "; check remote=, local= and split="
        )
    chosen = [found[key] for key in sorted(found)]
    digest = xxhash.xxh3_128()
    for each in chosen:
        digest.update(f"{each.key}\0{each.size}\0{each.version}\0".encode(errors="surrogateescape"))
    often = [counts[each.key] for each in chosen]
    if max(often) > 1:
        digest.update(f"{often}".encode())
    return FileTree(chosen, often, digest.hexdigest())


def _listed(storage: Storage, start: str) -> list[ObjectInfo]:
    return list(storage.list(start))


def _meant(key: str, part: str) -> bool:
    parts = key.split("/")
    if key == INDEX_NAME or key.startswith(MULTIFILE_PREFIX) or STATE_DIR in parts:
        return False
    if not parts[-1]:  # directory placeholder
        return False
    if is_glob(part):
        return compile_glob(part).fullmatch(key) is not None
    return not part or key == part or key.startswith(f"{part.rstrip('/')}/")


def bundles(files: Sequence[ObjectInfo], chosen: FileSelection) -> Iterator[ShardManifest]:
    """Yield shards of up to `_MOST_FILES` selected files and `_MOST_BYTES`, in their order."""
    labels = chosen.labels
    first = size = 0
    for place, number in enumerate([*chosen.numbers, -1]):
        more = files[number].size if number >= 0 else _MOST_BYTES + 1
        if place > first and (place - first == _MOST_FILES or size + more > _MOST_BYTES):
            some = [files[each] for each in chosen.numbers[first:place]]
            yield ShardManifest.of(
                [each.key for each in some],
                [each.size for each in some],
                None if labels is None else labels[first:place],
            )
            first, size = place, 0
        size += more
