"""Writing of a snapshot as a version of a view."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import public_url
from streamplug.transfer import map_disk_errors
from streamplug.types import Int64
from streamplug_views.manifest import Group, Manifest, RowsFile, SourceEntry, ViewPart
from streamplug_views.row_map import RowMap, RowMapping
from streamplug_views.row_set import RowSet
from streamplug_views.snapshot import GroupState, Snapshot
from streamplug_views.sources import relative_url
from streamplug_views.version_store import VersionStore, file_digest
from streamplug_views.workspace import ViewWorkspace

# A query, a password, or a user of HTTP, which may be a token.
_CREDENTIALS = re.compile(r"://.*\?|://[^/]*:[^/]*@|https?:/{1,2}[^/]*@", re.IGNORECASE | re.DOTALL)


class CommitWriter:
    """Writer of the files and the manifest of one commit."""

    def __init__(self, store: VersionStore, snapshot: Snapshot, workspace: ViewWorkspace) -> None:
        self._store, self._snapshot, self._workspace = store, snapshot, workspace
        self._commit = secrets.token_hex(8)

    def write(self, version: int, parent: str | None, message: str) -> tuple[Manifest, str]:
        """Write a version; return its manifest and its digest.

        Raises:
            ConflictError: If the version exists.
            StreamplugError: If it cannot be written.
        """
        snapshot = self._snapshot
        used = sorted({group.source for groups in snapshot.parts for group in groups})
        sources: list[SourceEntry] = []
        numbers = {}
        for number in used:
            source = self._relative(number)
            if source not in sources:
                sources.append(source)
            numbers[number] = sources.index(source)
        manifest = Manifest(
            version=version,
            parent=parent,
            commit=self._commit,
            time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            message=message,
            sources=sources,
            parts=[ViewPart(self._groups(groups, numbers)) for groups in snapshot.parts],
            steps=list(snapshot.steps),
        )
        return manifest, self._store.commit(manifest)

    def _relative(self, number: int) -> SourceEntry:
        opened = self._snapshot.sources[number]
        if not isinstance(opened.opened.stream.remote or "", str):
            raise ConfigError(
                f"{opened.url}: a view cannot refer to a list of files; merge them, or give a directory"
            )
        source = opened.source
        url = relative_url(opened.url, self._store.location)
        if _CREDENTIALS.search(url):
            raise ConfigError(
                f"{public_url(url)}: its URL has a password or a query, which a view would show to all its "
                "readers; pass credentials by storage_options= or the environment, and leave them out of "
                "the URL"
            )
        return replace(source, url=url)

    def _groups(self, groups: Sequence[GroupState], numbers: dict[int, int]) -> list[Group]:
        written = []
        for number, group in enumerate(groups):
            rows = self._rows(group.rows)
            starts = None
            if rows is not None and not number:
                is_kept = isinstance(group.rows, RowSet) and self._is_own(group.rows)
                starts = group.starts_file if is_kept else None
                starts = starts or self._starts(self._snapshot.starts_of(groups))
            written.append(Group(numbers[group.source], rows, starts, dict(group.columns)))
        return written

    def _rows(self, rows: RowMapping) -> RowsFile | None:
        if not isinstance(rows, (RowSet, RowMap)):
            return None
        path = rows.path
        if path is None:
            raise TypeError("rows of a snapshot are in files")
        name = f"data/{path.name}" if self._is_own(rows) else self._upload(path)
        return RowsFile(name, len(rows))

    def _is_own(self, rows: RowSet | RowMap) -> bool:
        """Return whether a file is one of an earlier version of the view."""
        return rows.path is not None and rows.where == self._store.url_of(f"data/{rows.path.name}")

    def _starts(self, starts: Int64) -> str:
        path = self._workspace.new_file("npy")
        with map_disk_errors(path):
            np.save(path, starts.astype(np.int64))
        return self._upload(path)

    def _upload(self, path: Path) -> str:
        name = f"data/{self._commit}-{file_digest(path)}{path.suffix}"
        self._store.write_file(name, path)
        return name
