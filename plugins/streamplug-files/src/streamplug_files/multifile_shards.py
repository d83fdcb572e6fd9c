"""Grouping of many files into shards, without copying them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import xxhash

from streamplug.errors import NotFound
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin import local_path
from streamplug.plugin_kit import SYSTEM_DIRECTORIES
from streamplug.transfer import STATE_DIR
from streamplug.types import ObjectInfo
from streamplug_files.glob import FileSet, unescape
from streamplug_files.listing import list_objects
from streamplug_files.manifest import MULTIFILE_PREFIX, ShardManifest
from streamplug_files.scan_source import FileSelection
from streamplug_files.writer_output import check_writer_output

MAX_FILES_PER_SHARD = 256
MAX_SHARD_BYTES = 32 << 20  # a larger file is a shard of its own


@dataclass(frozen=True, slots=True)
class FileTree:
    """Files sorted by name, how often each is listed, and a digest of names, sizes, versions and counts.

    `empty_directories` are the top-level directories without files, sorted, if the whole tree is local.
    """

    files: Sequence[ObjectInfo]
    counts: Sequence[int]
    digest: str
    empty_directories: Sequence[str] = ()

    def repeat_files(self, selection: FileSelection) -> FileSelection:
        """Repeat the samples as often as their files are listed: one pass over all, then the next."""
        passes = max((self.counts[number] for number in selection.numbers), default=0)
        positions = [
            position
            for pass_number in range(passes)
            for position, number in enumerate(selection.numbers)
            if self.counts[number] > pass_number
        ]
        labels = selection.labels
        return replace(
            selection,
            numbers=[selection.numbers[position] for position in positions],
            labels=None if labels is None else [labels[position] for position in positions],
        )


def list_tree(storage: Storage, files: FileSet, retries: int) -> FileTree:
    """List the files of a file set.

    Raises:
        NotFound: If there are none, or a writer of them has not finished.
        ConfigError: If one is a link to a directory.
    """
    infos: dict[str, ObjectInfo] = {}
    counts: Counter[str] = Counter()
    part_counts: list[int] = []
    for part in files.parts:
        num_before = counts.total()
        for info in list_objects(storage, part, retries, recursive=True):
            if info.key != INDEX_NAME and not info.key.startswith(MULTIFILE_PREFIX):
                infos[info.key] = info
                counts[info.key] += 1
        part_counts.append(counts.total() - num_before)
    empty_part = files.find_empty(part_counts)
    if not infos or empty_part is not None:
        parts = [empty_part] if infos and empty_part else files.parts
        raise NotFound(
            f"{storage.url}: there are no files"
            + ("" if files.whole else f" that match {', '.join(parts)[:200]}")
            + "; check remote=, local= and split="
        )
    keys = sorted(infos)
    shown = [key for key in keys if not (key.startswith(".") or "/." in key)]
    check_writer_output(storage, shown, retries, named={*map(unescape, files.parts)})
    digest = xxhash.xxh3_128()
    for key in keys:
        text = f"{key}\0{infos[key].size}\0{infos[key].version}\0"
        digest.update(text.encode(errors="surrogateescape"))
    times = [counts[key] for key in keys]
    if max(times) > 1:
        digest.update(f"{times}".encode())
    root = local_path(storage.url) if files.whole else None
    empty = [] if root is None else _empty_directories(root, keys)
    return FileTree([infos[key] for key in keys], times, digest.hexdigest(), empty)


def _empty_directories(root: Path, keys: Sequence[str]) -> list[str]:
    """Return the directories directly below a local one that are in no key, but for those of software."""
    known = {key.partition("/")[0] for key in keys} | SYSTEM_DIRECTORIES
    known |= {STATE_DIR, MULTIFILE_PREFIX.rstrip("/")}
    with os.scandir(root) as entries:
        return sorted(e.name for e in entries if e.name not in known and e.is_dir())


def group_files(files: Sequence[ObjectInfo], selection: FileSelection) -> Iterator[ShardManifest]:
    """Yield shards of up to `MAX_FILES_PER_SHARD` selected files and `MAX_SHARD_BYTES`, in their order."""
    selected = [files[number] for number in selection.numbers]
    start = size = 0
    bounds = [0]
    for position, file in enumerate(selected):
        is_full = position - start == MAX_FILES_PER_SHARD or size + file.size > MAX_SHARD_BYTES
        if position > start and is_full:
            bounds.append(position)
            start, size = position, 0
        size += file.size
    for start, stop in pairwise([*bounds, len(selected)] if selected else ()):
        part, labels = selected[start:stop], selection.labels
        yield ShardManifest.of(
            [file.key for file in part],
            [file.size for file in part],
            None if labels is None else labels[start:stop],
        )
