"""Cache of one stream's shard files: download, verification, decompression, repair."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamplug.cache.quota import CacheQuota, CommitFile
from streamplug.cache.scan_files import find_scan_file, scan_file_path
from streamplug.cache.staging import staging_path
from streamplug.config import parse_bytes
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DataError,
    NotFound,
    PluginError,
    StreamplugError,
    prefix_errors,
)
from streamplug.index import Index
from streamplug.interfaces import (
    CacheHit,
    Compression,
    ShardDownloaded,
    ShardFile,
    ShardInfo,
    ShardRepaired,
    Storage,
)
from streamplug.plugin import make
from streamplug.plugin_kit import is_full_disk, naming_codec, sleep
from streamplug.transfer import (
    DOWNLOAD_TIMEOUT_SECONDS,
    NO_PATIENCE,
    Observer,
    Patience,
    cache_lock,
    check_reachable,
    download_file,
    emit,
    map_disk_errors,
    max_pause_seconds,
    observer_context,
    open_cancellable,
    prefix_shard_errors,
    size_error,
    track_download,
    verify_file,
)
from streamplug.types import FileInfo

_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")
_LOG = logging.getLogger("streamplug.cache")
_RETRY_SECONDS = (0.0, 0.1, 0.5)  # waits before retries after an error of the local disk


def parse_cache_limit(value: float | str, directory: Path) -> int:
    """Return a cache limit in bytes.

    The limit is a number of bytes, text such as ``"10gb"``, or ``"50%"`` of the size of the disk of
    `directory`, which need not exist.
    """
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        limit = parse_bytes(value, "cache_limit")
    else:
        share = Fraction(match[1]) / 100
        if share > 1:
            raise ConfigError(f"cache_limit={value!r:.60}: a disk has no more than 100%")
        limit = int(share * _disk(directory))
    if limit < 1:
        raise ConfigError(f"cache_limit={value!r:.60}: must be more than 0; None is no limit")
    return limit


def _disk(directory: Path) -> int:
    existing = directory.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    with map_disk_errors(existing):
        return shutil.disk_usage(existing).total


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Options of downloads and of the local cache."""

    retries: int = 2
    timeout: float = DOWNLOAD_TIMEOUT_SECONDS  # stall timeout
    patience: Patience = NO_PATIENCE
    # Verified once per process for cached files, too; None verifies downloads by the fastest digest.
    validate_hash: str | None = None
    keep_zip: bool = False  # whether to keep compressed files beside the raw ones
    cache_limit: int | None = None  # quota in bytes with LRU eviction; None is unlimited
    root: Path | None = None  # directory of the quota, a parent of the shards'; None if the same

    @property
    def stall_seconds(self) -> float:
        """Seconds for which a process may wait for its server, or before its next attempt."""
        return self.timeout + max_pause_seconds(max(self.retries, self.patience.seconds > 0))


def is_compressed(file: ShardFile) -> bool:
    """Return whether a shard file is stored in compressed form."""
    return file.zip is not None and file.zip.basename != file.raw.basename


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes; None if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def has_zip(directory: Path, file: ShardFile) -> bool:
    """Return whether a directory has the complete compressed file."""
    if file.zip is None or not is_compressed(file):
        return False
    return size_of(directory / file.zip.basename) == file.zip.bytes


def is_complete(path: Path, file: ShardFile) -> bool:
    """Return whether a raw file exists with its full size."""
    return size_of(path) == file.raw.bytes


def report_wrong_size(path: Path, file: ShardFile) -> None:
    """Report a raw file that is there with another size, which will be downloaded or decompressed again."""
    size = size_of(path)
    if size is not None:
        _LOG.warning(
            "%s has %d bytes, the index says %d: fetching it again", path, size, file.raw.bytes
        )
        emit(ShardRepaired(str(path)))


def cached_bytes(file: ShardFile) -> int:
    """Return the size of a file in the cache, raw plus compressed."""
    return file.raw.bytes + (file.zip.bytes if file.zip is not None else 0)


def cached_files(shard: ShardInfo, derived: Path | None) -> dict[str, ShardFile]:
    """Return the files of a shard by role, without those that a scan wrote to `derived`."""
    files = shard.files.items()
    return {role: file for role, file in files if not scan_file_path(derived, file.raw)}


def largest_shard(index: Index) -> tuple[int, int]:
    """Return the size in bytes and the number of the largest shard."""
    sizes = np.zeros(len(index), np.int64)
    for table in index.tables.values():
        sizes += table.bytes
    shard = int(sizes.argmax())
    return int(sizes[shard]), shard


def inode(path: Path) -> int | None:
    """Return the inode of a file; None if it does not exist."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def missing_file_error(path: Path, size: int) -> CorruptShardError | NotFound:
    """Return the error for a missing or truncated file of a data set that is read in place."""
    if path.exists():
        return size_error(path, str(path), size)
    return NotFound(f"{path} does not exist; pass remote= if the set lies elsewhere")


def decompress_file(stored: Path, raw: Path, spec: str | None, size: int, where: str) -> None:
    """Decompress `stored` to `raw`, of at most `size` bytes; errors name the file `where`."""
    with prefix_errors(where, PluginError):
        codec: Compression = make("compression", spec or "none")
    with open_cancellable(stored) as source, raw.open("wb") as target:
        try:
            with naming_codec(codec):
                codec.decompress_stream(source, target, max_size=size)
        except DataError as error:
            raise type(error)(f"{where}: {error}; write or copy it again") from error


close_evicted_callbacks: list[Callable[[], None]] = []
"""Functions that close the evicted files that this process has open, to free their disk space."""

_OpenFiles = dict[str, BinaryIO]  # by role
_WrapCommit = Callable[[CommitFile], CommitFile]


class ShardStore:
    """The local files of one stream's shards.

    A raw file that exists is complete, unless it is older than the current boot of the machine, when it is
    verified again: files are renamed to their final name after verification, but not synced. Processes
    may share a directory; one of them downloads a shard, the others wait. With a quota, a file may be
    evicted at any time, and is downloaded again.
    """

    def __init__(
        self,
        index: Index,
        local: Path,
        remote: Storage | None,
        options: CacheOptions,
        observer: Observer | None = None,
        *,
        derived: Path | None = None,
        unpacked: Path | None = None,
        offline: bool = False,
    ) -> None:
        """Cache the shards of an index in `local`; without a remote, that is the data set, only read.

        `derived` has the files that a scan wrote. Without a remote, compressed shards are decompressed into
        `unpacked`. While the remote is `offline`, no file is removed that would have to be downloaded again.
        """
        self.derived = derived
        # Directory of what is downloaded or decompressed; None if all is read in place.
        self._cache = unpacked if remote is None else local
        # Damaged raw files of a data set read in place, to be decompressed elsewhere.
        self._ignored: set[str] = set()
        self._offline = offline
        self.observer = observer
        self._index, self._options = index, options
        self._local, self._remote = local, remote
        self._quota = CacheQuota(options.root or self._cache or local, options.cache_limit)
        self._checked: set[str] = set()

    @property
    def fetches(self) -> bool:
        """Whether shards may have to be downloaded or decompressed."""
        return self._cache is not None

    @property
    def limit(self) -> int | None:
        """Quota in bytes; None is unlimited."""
        return self._quota.limit

    def is_cached(self, shard: int) -> bool:
        """Return whether the raw files of a shard are there."""
        files = cached_files(self._index.shard(shard), self.derived).values()
        return all(self._raw_path(file).exists() for file in files)

    def begin(self) -> None:
        """Check that the largest shard fits the quota, and remove the staging files of dead processes."""
        if self.limit is not None and len(self._index):
            size, shard = largest_shard(self._index)
            if size > self.limit:
                raise ConfigError(
                    f"cache_limit={self.limit}: shard {shard} of {self._where('')} alone takes "
                    f"{size} bytes, and at least one shard must fit in the cache; raise cache_limit="
                )
        if self._cache is not None:
            for directory in {self._cache, self._quota.root}:
                with suppress(OSError):  # not writable: no staging files of ours
                    CacheQuota(directory, None).remove_stale()

    def ensure(self, shard: int, opened: _OpenFiles | None = None) -> Mapping[str, Path]:
        """Return the paths of a shard's raw files by role, downloading them if necessary.

        `opened` receives the downloaded files, open, by role, for the caller to close: another process may
        evict a file before the caller opens its path.
        """
        info = self._index.shard(shard)
        size = sum(map(cached_bytes, info.files.values()))
        with (
            map_disk_errors(self._local, size),
            observer_context(self.observer),
            prefix_shard_errors(shard),
        ):
            return {
                role: find_scan_file(self.derived, file.raw, self._checked)
                or self._ensure_file(shard, role, file, opened)
                for role, file in info.files.items()
            }

    def touch(self, paths: Sequence[Path]) -> bool:
        """Update the time of last use if there is a quota; return whether the files still exist."""
        if self.limit is None:
            return True
        try:
            for path in paths:
                if self._in_cache(path):
                    os.utime(path)
        except FileNotFoundError:
            return False
        except OSError:  # without permission: evicted early
            pass
        return True

    def discard(self, shard: int, inodes: Mapping[str, int]) -> bool:
        """Remove damaged files of a shard; return whether they can be downloaded again.

        `inodes` are those of the damaged files by role; a file with another inode has been replaced since.
        """
        files = cached_files(self._index.shard(shard), self.derived)
        if self._remote is None and not all(is_compressed(file) for file in files.values()):
            return False
        if self._offline and not all(has_zip(self._local, file) for file in files.values()):
            with suppress(StreamplugError):
                self._check_online(next(iter(files.values())))
            if self._offline:
                return False  # it may be the only copy
        with map_disk_errors(self._local), observer_context(self.observer):
            for role, file in files.items():
                if role not in inodes:
                    continue
                path = self._raw_path(file)
                if not self._in_cache(path):
                    if inode(path) == inodes[role]:
                        self._ignored.add(file.raw.basename)
                    continue
                with self._lock(path):
                    if inode(path) == inodes[role]:
                        path.unlink(missing_ok=True)
                        emit(ShardRepaired(str(path)))
                        online = self._remote is not None and not self._offline
                        if online and file.zip is not None:
                            (self._local / file.zip.basename).unlink(missing_ok=True)
        return True

    def evict(self, shard: int) -> None:
        """Remove the files of a shard from the cache; ConfigError if the data set is read in place."""
        if self._remote is None:
            raise ConfigError(
                f"shard {shard} of {self._local}: the data set is read in place, and nothing of it "
                "is ever removed; give remote= and local= to read it through a cache"
            )
        with map_disk_errors(self._local), observer_context(self.observer):
            for file in cached_files(self._index.shard(shard), self.derived).values():
                path = self._local / file.raw.basename
                with self._lock(path):
                    stored = [self._local / file.zip.basename] if file.zip is not None else []
                    self._quota.remove([path, *stored])
        _close_evicted()

    def _ensure_file(
        self, shard: int, role: str, file: ShardFile, opened: _OpenFiles | None
    ) -> Path:
        while is_complete(path := self._raw_path(file), file):
            if self._is_valid(shard, role, file, path):
                self._emit_hit(path, file)
                return path
        if self._remote is None and file.zip is None:
            raise missing_file_error(path, file.raw.bytes)
        with self._lock(path):
            if not is_complete(path, file):  # no other process downloaded it meanwhile
                if self._offline and not has_zip(self._local, file):
                    self._check_online(file)
                report_wrong_size(path, file)
                self._fetch(shard, file, path, partial(_open_before, path, role, opened))
            else:
                self._emit_hit(path, file)
        return path

    def _raw_path(self, file: ShardFile) -> Path:
        path = self._local / file.raw.basename
        if self._remote is None and self._cache is not None and file.zip is not None:
            name = file.raw.basename
            if name in self._ignored or not is_complete(path, file):
                return self._cache / name
        return path

    def _in_cache(self, path: Path) -> bool:
        """Return whether a file is in the cache; others are of a data set read in place, never changed."""
        return self._cache is not None and path.is_relative_to(self._cache)

    def _emit_hit(self, path: Path, file: ShardFile) -> None:
        if self._remote is not None:
            emit(CacheHit(str(path), file.raw.bytes))

    def _is_valid(self, shard: int, role: str, file: ShardFile, path: Path) -> bool:
        """Verify a cached file; False if it was damaged or evicted.

        It is verified once per process if configured, else once after the machine started anew.
        """
        name, algorithm = file.raw.basename, self._options.validate_hash
        key, boot = self._name(path), self._quota.boot
        is_cached = self._in_cache(path)
        if name in self._checked or (algorithm is None and (not is_cached or key in boot)):
            return True
        try:
            found_inode = path.stat().st_ino
            verify_file(path, file.raw, algorithm, str(path))
        except FileNotFoundError:
            return False
        except CorruptShardError as error:
            if not self.discard(shard, {role: found_inode}):
                raise
            _LOG.warning("%s: fetching it again", error)
            return False
        self._checked.add(name)
        if is_cached:
            boot.add(key)
        return True

    def _fetch(self, shard: int, file: ShardFile, path: Path, wrap: _WrapCommit) -> None:
        for seconds in (*_RETRY_SECONDS, None):
            try:
                self._fetch_once(shard, file, path, wrap)
                break
            except OSError as error:
                is_mapped = isinstance(error, StreamplugError)
                if seconds is None or is_mapped or not self._may_retry(error, file):
                    raise
                sleep(seconds)
        if self._options.validate_hash is not None:
            self._checked.add(file.raw.basename)

    def _may_retry(self, error: OSError, file: ShardFile) -> bool:
        """Return whether a retry may succeed: after an eviction, or if a directory was missing."""
        if is_full_disk(error) and self.limit is not None:
            with suppress(StreamplugError):
                self._check_online(file)
            if self._offline:
                return False  # what it would evict may be the only copy
            self._quota.shrink(cached_bytes(file))
            _close_evicted()
            return True
        return isinstance(error, FileNotFoundError)

    def _fetch_once(self, shard: int, file: ShardFile, path: Path, wrap: _WrapCommit) -> None:
        name, root, remote = self._name(path), self._quota.root, self._remote
        if remote is None:
            with self._quota.reserve(name, file.raw.bytes) as commit:
                self._unpack_local(shard, file, path, wrap(commit))
            return
        with (
            self._quota.reserve(name, cached_bytes(file), evict=not self._offline) as commit_file,
            staging_path(root, name) as part,
        ):
            commit = wrap(commit_file)
            stored = file.zip or file.raw
            # The compressed file may exist without keep_zip=, too: in a copied data set.
            zip_path = self._local / stored.basename
            if has_zip(self._local, file) and self._unpack_cached(
                shard, file, zip_path, path, commit
            ):
                return
            event = self._download(remote, stored, part)
            if file.zip is None:
                commit(part, path)
            else:
                self._unpack(shard, file, part, path, commit)
            emit(event)
            if self._options.keep_zip and is_compressed(file):
                commit(part, zip_path)

    def _download(self, remote: Storage, file: FileInfo, part: Path) -> ShardDownloaded:
        where, options = self._where(file.basename), self._options

        def check_copy(copy: Path) -> None:
            verify_file(copy, file, options.validate_hash, where)

        def receive() -> None:
            download_file(
                remote,
                file,
                part,
                retries=options.retries,
                timeout=options.timeout,
                patience=options.patience,
                check_copy=check_copy,
            )

        return track_download(receive, where, file.bytes)

    def _check_online(self, file: ShardFile) -> None:
        """Check that an offline remote is reachable again before anything is evicted for a download."""
        if self._remote is not None and self._offline:
            name, options = (file.zip or file.raw).basename, self._options
            check_reachable(self._remote, name, self._local, options.timeout, options.retries)
            _LOG.info("%s can be reached again", self._remote.url)
            self._offline = False

    def _unpack_cached(
        self, shard: int, file: ShardFile, zip_path: Path, path: Path, commit: CommitFile
    ) -> bool:
        """Decompress the cached compressed file, unless it is damaged: then it is removed."""
        try:
            self._unpack(shard, file, zip_path, path, commit)
        except FileNotFoundError:  # evicted meanwhile
            return False
        except DataError as error:
            self._check_online(file)
            _LOG.warning("%s, as kept in %s: downloading it again", error, zip_path)
            zip_path.unlink(missing_ok=True)
            emit(ShardRepaired(str(zip_path)))
            return False
        return True

    def _unpack_local(self, shard: int, file: ShardFile, path: Path, commit: CommitFile) -> None:
        stored = file.zip or file.raw
        source = self._local / stored.basename
        if not source.exists():
            raise missing_file_error(source, stored.bytes)
        verify_file(source, stored, self._options.validate_hash, self._where(stored.basename))
        self._unpack(shard, file, source, path, commit)

    def _unpack(
        self, shard: int, file: ShardFile, stored: Path, path: Path, commit: CommitFile
    ) -> None:
        where = self._where((file.zip or file.raw).basename)
        spec = self._index.schema(shard).compression
        with staging_path(self._quota.root, self._name(path)) as part:
            decompress_file(stored, part, spec, file.raw.bytes, where)
            verify_file(part, file.raw, self._options.validate_hash, f"{where}, decompressed,")
            commit(part, path)

    def _lock(self, path: Path) -> AbstractContextManager[None]:
        return cache_lock(self._quota.root, self._name(path), self._options.stall_seconds)

    def _name(self, path: Path) -> str:
        root = self._quota.root
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name

    def _where(self, basename: str) -> str:
        remote = self._remote
        return str(self._local / basename) if remote is None else remote.url_of(basename)


def _close_evicted() -> None:
    """Close evicted files, which take space until all processes have closed them."""
    for callback in close_evicted_callbacks:
        callback()


def _open_before(
    target: Path, role: str, opened: _OpenFiles | None, commit: CommitFile
) -> CommitFile:
    """Return a commit function that opens the file at `target` before another process may evict it."""
    if opened is None:
        return commit

    def open_and_commit(part: Path, path: Path) -> None:
        if path == target:
            if role in opened:  # left by a failed attempt
                opened.pop(role).close()
            opened[role] = part.open("rb")
        commit(part, path)

    return open_and_commit
