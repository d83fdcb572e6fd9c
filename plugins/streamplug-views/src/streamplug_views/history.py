"""The versions of a view, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from typing import Any, TypeAlias, cast

import numpy as np
from streamplug_tools.options import check_count

from streamplug.config import check_flags
from streamplug.errors import ConfigError
from streamplug.plan import RowSelection
from streamplug.plugin import absolute_location
from streamplug.stream import Stream
from streamplug.types import Int64
from streamplug_views.manifest import Manifest, Step
from streamplug_views.snapshot import OpenSource, Snapshot
from streamplug_views.version_store import VersionStore
from streamplug_views.view_source import OpenView

Location: TypeAlias = "str | PathLike[str]"

_ROWS_PER_BLOCK = 1 << 20


@dataclass(frozen=True)
class Version:
    """A version of a view.

    Attributes:
        version: Its number.
        time: When it was committed, in ISO 8601.
        message: What its commit says.
        samples: Number of samples.
        sources: Locations of the data sets that it has rows of, relative to that of the view if possible.
        steps: Operations that made it, with the number of samples after each.
        tags: Its tags.
        digest: Digest of its manifest.
        parent: Digest of the manifest that it was made of; None for the first.
    """

    version: int
    time: str
    message: str
    samples: int
    sources: Sequence[str]
    steps: Sequence[Step]
    tags: Sequence[str]
    digest: str
    parent: str | None


@dataclass(frozen=True)
class Change:
    """Differences between two versions of a view.

    Attributes:
        samples: Number of samples of both.
        added: Number of samples that only the second has.
        removed: Number of samples that only the first has.
        columns_added: Columns that only the second has.
        columns_removed: Columns that only the first has.
    """

    samples: tuple[int, int]
    added: int
    removed: int
    columns_added: Sequence[str]
    columns_removed: Sequence[str]


def open_store(location: Location, storage_options: Mapping[str, Any] | None) -> VersionStore:
    """Return the versions of the view at a location."""
    return VersionStore(absolute_location(fspath(location)), storage_options)


def log(location: Location, *, storage_options: Mapping[str, Any] | None = None) -> list[Version]:
    """Return all versions of a view, the latest first.

    Args:
        location: URL or path of the view.
        storage_options: ViewOptions of its storage.

    Raises:
        StreamplugError: If there is no view, or it cannot be read.
    """
    store = open_store(location, storage_options)
    store.latest()  # raises if there is no view
    tags = store.tags()
    return [
        _version(*store.read(version), [name for name, of in tags.items() if of == version])
        for version in reversed(store.versions())
    ]


def show(
    location: Location,
    version: int | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Version:
    """Return one version of a view; None for the latest."""
    store = open_store(location, storage_options)
    number = store.resolve(version)
    tags = [name for name, of in store.tags().items() if of == number]
    return _version(*store.read(number), tags)


def _version(manifest: Manifest, digest: str, tags: Sequence[str]) -> Version:
    return Version(
        version=manifest.version,
        time=manifest.time,
        message=manifest.message,
        samples=sum(manifest.sizes()),
        sources=[source.url for source in manifest.sources],
        steps=manifest.steps,
        tags=tags,
        digest=digest,
        parent=manifest.parent,
    )


def tag(
    location: Location,
    name: str,
    version: int | None = None,
    *,
    move: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Name a version of a view; `StreamingDataset(version=name)` reads it, and `expire` keeps it.

    Args:
        location: URL or path of the view.
        name: Letters, digits, ``.``, ``_`` and ``-``, but no number.
        version: Its number; None for the latest.
        move: Whether to move a tag that exists.
        storage_options: ViewOptions of its storage.

    Raises:
        ConfigError: If the name is invalid or in use, or there is no such version.
    """
    check_flags(move=move)
    store = open_store(location, storage_options)
    store.tag(name, store.resolve(version), move=move)


def expire(
    location: Location,
    *,
    keep: int,
    dry_run: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[list[int], list[str]]:
    """Remove old versions of a view, and the files that only they refer to. Tagged versions stay.

    Args:
        location: URL or path of the view.
        keep: Number of latest versions to keep, at least 1.
        dry_run: Whether to remove nothing.
        storage_options: ViewOptions of its storage.

    Returns:
        The versions, and the names of their files.

    Raises:
        ConfigError: If `keep` is less than 1.
        StreamplugError: If there is no view, it cannot be read, or its files cannot be removed.
    """
    check_count("keep", keep)
    check_flags(dry_run=dry_run)
    store = open_store(location, storage_options)
    store.latest()  # raises if there is no view
    return store.expire(keep, dry_run=dry_run)


def diff(
    location: Location,
    old: int | str,
    new: int | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Change:
    """Return the differences between two versions of a view, without reading samples.

    Args:
        location: URL or path of the view.
        old: A version or a tag.
        new: Another; None for the latest.
        storage_options: ViewOptions of the storages.

    Raises:
        ConfigError: If they have rows of versions of a table that differ by more than new files at the end.
        StreamplugError: If a version does not exist or cannot be read.
    """
    before, after = (_snapshot(location, version, storage_options) for version in (old, new))
    places = {_place_of(source) for source in before.sources}
    tables = [s for s in (*before.sources, *after.sources) if s.source.version is not None]
    for place in places:
        _check_numbers([source for source in tables if _place_of(source) == place])
    common = sum(_common_rows(before, after, place) for place in places)
    return Change(
        samples=(before.size, after.size),
        added=after.size - common,
        removed=before.size - common,
        columns_added=[name for name in after.columns if name not in before.columns],
        columns_removed=[name for name in before.columns if name not in after.columns],
    )


def _snapshot(
    location: Location, version: int | str | None, storage_options: Mapping[str, Any] | None
) -> Snapshot:
    stream = Stream(
        remote=absolute_location(fspath(location)),
        format="view",
        version=version,
        storage_options=storage_options,
    )
    return cast("OpenView", stream.open()).snapshot


def _place_of(source: OpenSource) -> tuple[str, str | None]:
    """Return the location and the split of a source."""
    return source.url, source.source.split


def _check_numbers(sources: Sequence[OpenSource]) -> None:
    """Refuse versions of a table in which rows of one number differ."""
    for shorter, longer in pairwise(sorted(sources, key=lambda source: len(source.index))):
        count = len(shorter.index)
        names, longer_names = (
            source.index.tables["raw_data"].basenames for source in (shorter, longer)
        )
        if shorter.source.digest != longer.source.digest and not (
            np.array_equal(shorter.index.starts, longer.index.starts[: count + 1])
            and all(names[shard] == longer_names[shard] for shard in range(count))
        ):
            raise ConfigError(
                f"diff: {shorter.opened.version} and {longer.opened.version} of the table "
                f"{shorter.opened.stream.shown_url} differ by more than new files, so the rows of these "
                "versions of the view cannot be compared; compare those of the table with its own tools"
            )


def _common_rows(before: Snapshot, after: Snapshot, place: tuple[str, str | None]) -> int:
    """Return the number of rows of a source that both have; rows may be in a snapshot several times."""
    selections = [
        [
            cast("RowSelection", groups[0].rows)
            for groups in snapshot.parts
            if _place_of(snapshot.sources[groups[0].source]) == place
        ]
        for snapshot in (before, after)
    ]
    selected = [[rows for rows in side if len(rows)] for side in selections]
    if not all(selected):
        return 0
    begin = max(min(rows.row(0) for rows in side) for side in selected)
    end = min(max(rows.row(len(rows) - 1) for rows in side) for side in selected) + 1
    common = 0
    for first in range(begin, end, _ROWS_PER_BLOCK):
        last = min(first + _ROWS_PER_BLOCK, end)
        counts = [_count_rows(side, first, last) for side in selected]
        common += int(np.minimum(*counts).sum())
    return common


def _count_rows(selections: Sequence[RowSelection], first: int, last: int) -> Int64:
    """Return how often each row from `first` to `last`, exclusive, is selected."""
    counts: Int64 = np.zeros(last - first, np.int64)
    for rows in selections:
        begin, end = rows.ranks(np.array([first, last])).tolist()
        counts[rows.rows(np.arange(begin, end)) - first] += 1
    return counts
