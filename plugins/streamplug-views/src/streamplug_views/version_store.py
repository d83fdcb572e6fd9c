"""Versions of a view in a storage, and their atomic commits.

The files of a view are::

    view.json             recognizes the view, and names a recent version
    versions/<n>.json     manifest of version n, from 1; written once
    data/<commit>-<…>     rows that manifests refer to; written before them, under names of their own
    tags/<name>.json      version that a tag names
    expired.json          is there once versions were removed; names files that are still to be removed

A commit creates the next ``versions/<n>.json`` only if it does not exist. So of concurrent commits one
succeeds, and a commit that is killed leaves the versions as they were. ``view.json`` is a hint: readers look
for versions after the one that it names. A slow commit may write it after later commits did. So readers list
the versions as soon as there can be gaps between them.
"""

from __future__ import annotations

import json
import logging
import os.path
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import xxhash

from streamplug.cache import source_cache_dir
from streamplug.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigError,
    DataError,
    NotFound,
    OutputExistsError,
    StorageError,
    Transient,
)
from streamplug.index import INDEX_NAME
from streamplug.plugin import absolute_location, local_path, open_storage
from streamplug.plugin_kit import make_directory, stage_file, sync_directory
from streamplug.transfer import call_with_retries, map_disk_errors, raise_local_error
from streamplug_views.errors import ConflictError
from streamplug_views.manifest import (
    FORMAT,
    FORMAT_VERSION,
    VIEW_NAME,
    Manifest,
    is_data_file,
    manifest_digest,
    parse_manifest,
    parse_object,
)

_LOG = logging.getLogger("streamplug.views")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EXPIRED_NAME = "expired.json"
_RETRIES = 3


class VersionStore:
    """The versions of the view at a location."""

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, retries: int = _RETRIES
    ) -> None:
        """Set the location; nothing is opened.

        Args:
            url: URL or path of the view.
            options: ViewOptions of its storage.
            retries: Number of retries of failed requests.
        """
        self.location = absolute_location(url)  # other processes may have another working directory
        self._storage = open_storage(url, options)
        self._retries = retries

    @property
    def url(self) -> str:
        """URL of the view, without credentials."""
        return self._storage.url

    @property
    def place(self) -> str:
        """Identity of the location: the URL, or the path without links."""
        path = local_path(self.location)
        return self.url if path is None else os.path.realpath(path)

    def url_of(self, name: str) -> str:
        """Return the URL of a file of the view."""
        return self._storage.url_of(name)

    # -- reading ------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether there is a view, though perhaps without a version."""
        return self._exists(VIEW_NAME)

    def check_no_data_set(self) -> None:
        """Raise OutputExistsError if there is a data set, which is read rather than a view beside it."""
        if self._exists(INDEX_NAME):
            raise OutputExistsError(
                f"{self.url} has a data set, which would be read rather than the view: choose another place"
            )

    def latest(self) -> int:
        """Return the number of the latest version; 0 if there is none.

        Raises:
            StreamplugError: If there is no view, or it cannot be read.
        """
        where = self.url_of(VIEW_NAME)
        try:
            hint = parse_object(self._read(VIEW_NAME), where)
        except NotFound:
            raise NotFound(f"{where} does not exist: there is no view") from None
        if hint.get("format") != FORMAT or hint.get("format_version") != FORMAT_VERSION:
            raise DataError(
                f"{where} is not a view that this streamplug-views reads (format_version {FORMAT_VERSION}); "
                "install a newer one"
            )
        version = hint.get("latest")
        if type(version) is not int or version < 0:
            raise DataError(f"{where} is damaged: 'latest' is {version!r:.40}")
        while self._is_readable(_version_name(version + 1)):
            version += 1
        # Asked last: it is there before the first version is missing.
        if self._is_readable(_EXPIRED_NAME):
            # The hint may be that of a slow commit, and later versions follow a gap.
            try:
                return max(self.versions(), default=version)
            except Transient:
                raise
            except StorageError:  # web servers may not list directories
                pass
        return version

    def _exists(self, name: str) -> bool:
        return call_with_retries(partial(self._storage.exists, name), self._retries)

    def _is_readable(self, name: str) -> bool:
        try:
            return self._exists(name)
        except AccessDenied:  # S3's answer for missing files, without the right to list
            return False

    def read(self, version: int) -> tuple[Manifest, str]:
        """Return the manifest of a version, and its digest.

        Raises:
            StreamplugError: If the version does not exist or its manifest is damaged.
        """
        name = _version_name(version)
        try:
            data = self._read(name)
        except NotFound:
            known = ", ".join(map(str, self.versions()[-10:])) or "none"
            raise ConfigError(
                f"{self.url} has no version {version}; the latest ones are: {known}"
            ) from None
        manifest = parse_manifest(data, self.url_of(name))
        if manifest.version != version:
            raise DataError(f"{self.url_of(name)} is damaged: it is version {manifest.version}")
        return manifest, manifest_digest(data)

    def versions(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        names = self._names("versions/")
        return sorted(int(n.removesuffix(".json")) for n in names if n[:-5].isdecimal())

    def _names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        objects = call_with_retries(lambda: list(self._storage.list(folder)), self._retries)
        return [o.key.rpartition("/")[2] for o in objects]

    def resolve(self, version: int | str | None) -> int:
        """Return the number of a version, of a tag, or of the latest version for None.

        Raises:
            StreamplugError: If there is no such tag, or no version at all.
        """
        if isinstance(version, str):
            return self.tagged(version)
        if version is not None:
            return version
        if not (latest := self.latest()):
            raise NotFound(f"{self.url} has no version yet: its first commit did not finish")
        return latest

    def local_file(self, name: str, folder: Path | None = None) -> Path:
        """Return a file of the view on this machine, downloading it if it is not there.

        Args:
            name: Name of the file.
            folder: Cache directory; None for the user's.

        Raises:
            StorageError: If it cannot be read.
        """
        path = local_path(self.location)
        if path is not None:
            if not (path / name).is_file():
                raise NotFound(f"{self.url_of(name)} does not exist: the view is incomplete")
            return path / name
        cached = (folder or source_cache_dir(self.url)) / name
        with map_disk_errors(cached):
            if not cached.is_file():
                self._download(name, cached)
        return cached

    def _download(self, name: str, path: Path) -> None:
        make_directory(path.parent)
        own = path.with_name(f".{path.name}.{token_hex(8)}")  # others may download it, too
        with stage_file(path, own, durable=True) as staging:
            try:
                call_with_retries(partial(self._storage.download, name, staging), self._retries)
            except StorageError as error:
                raise_local_error(error, staging)
                raise
            if file_digest(staging) != name.rpartition("-")[2].partition(".")[0]:
                raise DataError(
                    f"{self.url_of(name)} differs from the digest in its name: it is damaged; write the "
                    "view again"
                )

    def _read(self, name: str) -> bytes:
        return call_with_retries(partial(self._storage.read, name), self._retries)

    # -- writing ------------------------------------------------------------------

    def write_file(self, name: str, path: Path) -> None:
        """Store a file that a manifest will refer to."""
        call_with_retries(partial(self._storage.upload, path, name), self._retries)

    def commit(self, manifest: Manifest) -> str:
        """Write a version whose files are stored; return its digest.

        Raises:
            ConflictError: If the version exists, as another commit wrote it.
            StorageError: If the storage fails, or cannot create a file only if it does not exist.
        """
        data = manifest.to_bytes()
        if manifest.version == 1:
            self._create(VIEW_NAME, _hint(0))
        # The next version may be free though others follow it: `expire` removed it.
        latest = max(self.versions(), default=0)
        if latest > manifest.version or not self._create(_version_name(manifest.version), data):
            number = max(latest, manifest.version)
            raise ConflictError(
                f"{self.url} has a version {number} that another commit wrote since this view was read; call "
                "rebase() to apply the changes to the latest version, and commit again"
            )
        try:
            self._write_hint(manifest.version)
        except StorageError as error:
            # The version is committed; readers find it from an older hint.
            _LOG.warning("%s; readers look for the latest version from an older one on", error)
        return manifest_digest(data)

    def _write_hint(self, version: int) -> None:
        call_with_retries(partial(self._storage.write, VIEW_NAME, _hint(version)), self._retries)

    def _create(self, name: str, data: bytes) -> bool:
        """Create a file; return whether it has this content."""

        def create() -> bool:
            try:
                self._storage.create(name, data)
            except AlreadyExists:
                # A request may have succeeded although its answer was lost.
                return self._storage.read(name) == data
            return True

        return call_with_retries(create, self._retries)

    # -- tags ---------------------------------------------------------------------

    def tag(self, name: str, version: int, *, move: bool = False) -> None:
        """Name a version.

        Args:
            name: Letters, digits, ``.``, ``_`` and ``-``, but no number.
            version: Number of the version.
            move: Whether to move a tag that exists.

        Raises:
            ConfigError: If the name is invalid or in use, or there is no such version.
        """
        _check_tag(name)
        if name.isdecimal():  # commands and configs would take it for a version
            raise ConfigError(
                f"tag {name!r:.60}: is the number of a version; use a name, such as 'v{name:.60}'"
            )
        self.read(version)
        data = json.dumps({"version": version}).encode()
        if move:
            call_with_retries(partial(self._storage.write, _tag_name(name), data), self._retries)
        elif not self._create(_tag_name(name), data):
            raise ConfigError(f"{self.url} has a tag {name!r} of another version; pass move=True")

    def tags(self) -> dict[str, int]:
        """Return the version of each tag."""
        names = self._names("tags/")
        return {name[:-5]: self.tagged(name[:-5]) for name in names if name.endswith(".json")}

    def tagged(self, name: str) -> int:
        """Return the version of a tag."""
        _check_tag(name)
        where = self.url_of(_tag_name(name))
        try:
            version = parse_object(self._read(_tag_name(name)), where).get("version")
        except NotFound:
            known = ", ".join(sorted(self.tags())) or "none"
            raise ConfigError(f"{self.url} has no tag {name!r}; its tags are: {known}") from None
        if type(version) is not int:
            raise DataError(f"{where} is damaged: 'version' is {version!r:.40}")
        return version

    # -- expiry -------------------------------------------------------------------

    def expire(self, keep: int, *, dry_run: bool = True) -> tuple[list[int], list[str]]:
        """Remove old versions and the files that only they refer to; tagged versions stay.

        Args:
            keep: Number of latest versions to keep, at least 1.
            dry_run: Whether to remove nothing.

        Returns:
            The versions, and the names of their files.
        """
        if keep < 1:
            raise ConfigError(f"keep={keep}: the latest version cannot be removed; keep 1 or more")
        tagged = set(self.tags().values())
        versions = self.versions()
        old = [version for version in versions[:-keep] if version not in tagged]
        kept: set[str] = set()
        for version in set(versions) - set(old):
            kept.update(self.read(version)[0].files)
        removed = {f for version in old for f in self.read(version)[0].files}
        files = sorted((removed | self._unremoved_files()) - kept)
        if (old or files) and not dry_run:
            self._write_unremoved_files(files)  # before there is a gap
            # For readers that cannot list the versions.
            self._write_hint(versions[-1])
            # Manifests first: a reader never finds a version whose files are gone.
            self._delete(map(_version_name, old))
            path = local_path(self.location)
            if path is not None:
                sync_directory(path / "versions")
            self._delete(files)
            self._write_unremoved_files([])
        return old, files

    def _unremoved_files(self) -> set[str]:
        """Return the files that an earlier `expire` would have removed, had it not been stopped."""
        where = self.url_of(_EXPIRED_NAME)
        try:
            names = parse_object(self._read(_EXPIRED_NAME), where).get("files", [])
        except NotFound:
            return set()
        if not isinstance(names, list) or not all(map(is_data_file, names)):
            raise DataError(f"{where} is damaged: 'files' is {names!r:.40}")
        return set(names)

    def _write_unremoved_files(self, names: list[str]) -> None:
        data = json.dumps({"files": names} if names else {}).encode()
        call_with_retries(partial(self._storage.write, _EXPIRED_NAME, data), self._retries)

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            call_with_retries(partial(self._storage.delete, name), self._retries)


def file_digest(path: Path) -> str:
    """Return the xxh3_128 hex digest of a file."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _hint(latest: int) -> bytes:
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, "latest": latest}
    return json.dumps(document, sort_keys=True).encode()


def _version_name(version: int) -> str:
    return f"versions/{version}.json"


def _tag_name(name: str) -> str:
    return f"tags/{name}.json"


def _check_tag(name: str) -> None:
    if not _TAG.fullmatch(name):
        raise ConfigError(f"tag {name!r:.60}: use letters, digits, '.', '_' and '-'")
