"""Makes the raw files of a shard ready on the local disk: downloaded, checked, decompressed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakMethod

import numpy as np

from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DataError,
    NotFound,
    StreamplugError,
)
from streamplug.fetch.download import download
from streamplug.fetch.files import FULL, check_file, errors_of_shard, local_errors
from streamplug.fetch.locks import cache_lock
from streamplug.fetch.observe import Observer, emit, fetching, observing
from streamplug.fetch.ranged import open_interruptible
from streamplug.fetch.room import Admit, Keep, Room
from streamplug.fetch.scratch import scratch
from streamplug.index import Index
from streamplug.interfaces import Compression, ShardFile, Storage
from streamplug.interfaces.callback import Cached, Healed
from streamplug.interfaces.cancel import sleep
from streamplug.plugin.registry import make
from streamplug.types import FileInfo

DOWNLOAD_TIMEOUT = 60.0
"""Seconds after which a download fails during which nothing arrived."""

_PAUSES = (0.0, 0.1, 0.5)  # before a shard is fetched anew that the local disk refused, in seconds
_LOG = logging.getLogger("streamplug.fetch")


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How files come from a remote, and how many of them stay.

    Attributes:
        retries: How often a failed download is tried again.
        timeout: Seconds after which a download fails during which nothing arrived.
        validate_hash: Which digest to check, also of files that were in the cache already, once in a
            process. None for a fast one of those that the index has, of what is downloaded.
        keep_zip: Whether compressed files stay in the cache beside the raw ones.
        cache_limit: Bytes that shards may take in the cache; None for any number.
        root: The directory that the limit is for, which has that of the shards inside; None if they
            are the same.
    """

    retries: int = 2
    timeout: float = DOWNLOAD_TIMEOUT
    validate_hash: str | None = None
    keep_zip: bool = False
    cache_limit: int | None = None
    root: Path | None = None


class ShardStore:
    """The local files of one stream's shards.

    A raw file that is there is whole: files get their final name only after they were checked.
    Several processes may share one directory; of those that want a shard, one fetches it. With a
    limit, a file may be gone at any time: then it is fetched again.

    Attributes:
        when_full: A method that lets go of files that were evicted, called when the disk is full.
    """

    def __init__(
        self,
        index: Index,
        local: Path,
        remote: Storage | None,
        options: FetchOptions,
        observer: Observer | None = None,
        *,
        derived: Path | None = None,
    ) -> None:
        """Keep the shards of `index` in `local`; without a remote they must be there, or in `derived`."""
        self.derived = derived
        self._observer = observer
        self._index = index
        self._local = local
        self._remote = remote
        self._options = options
        self._room = Room(options.root or local, None if remote is None else options.cache_limit)
        self._checked: set[str] = set()
        self.when_full: WeakMethod[Callable[[], None]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "when_full": None}

    @property
    def fetches(self) -> bool:
        """Whether shards may have to be downloaded or decompressed."""
        return self._remote is not None or self._index.compressed

    @property
    def limit(self) -> int | None:
        """Bytes that shards may take in the cache, or None for any number."""
        return self._room.limit

    def begin(self) -> None:
        """Check the limit, and remove what dead processes have left in the cache.

        Raises:
            ConfigError: If the largest shard does not fit into the limit.
        """
        if self.limit is not None and len(self._index):
            largest, shard = _largest(self._index)
            if largest > self.limit:
                raise ConfigError(
                    f"cache_limit={self.limit}: shard {shard} of {self._where('')} alone takes "
                    f"{largest} bytes, and every process that reads needs one or more; raise it"
                )
        if self.fetches:
            for directory in {self._local, self._room.root}:
                with suppress(OSError):  # whoever cannot write there has left nothing
                    Room(directory, None).tidy()

    def ensure(self, shard: int, opened: dict[str, BinaryIO] | None = None) -> Mapping[str, Path]:
        """Return the paths of a shard's raw files by role, fetching them if need be.

        Args:
            shard: Which one.
            opened: Takes those files that were fetched, open and by role, for the caller to close: others
                may evict them before a caller who has only their paths could open them.

        Raises:
            StorageError: If a file cannot be downloaded.
            DataError: If a file is damaged.
        """
        info = self._index.shard(shard)
        with local_errors(self._local), observing(self._observer), errors_of_shard(shard):
            return {
                role: self._made(file) or self._ensure_file(shard, file, Keep(role, opened))
                for role, file in info.files.items()
            }

    def touch(self, paths: Sequence[Path]) -> bool:
        """Note that files are being used, if there is a limit; returns whether they are still there."""
        if self.limit is None:
            return True
        try:
            for path in paths:
                os.utime(path)
        except FileNotFoundError:
            return False
        except OSError:  # without leave to, they go sooner than they might
            pass
        return True

    def discard(self, shard: int, seen: Mapping[str, int]) -> bool:
        """Remove files of a shard that turned out to be damaged, so that they are fetched again.

        Args:
            shard: Which one.
            seen: The inodes of its damaged files by role. Others have been fetched since.

        Returns:
            Whether they can be fetched again; those that cannot are never removed.
        """
        files = self._index.shard(shard).files
        if self._remote is None and not all(_packed(file) for file in files.values()):
            return False
        with local_errors(self._local), observing(self._observer):
            for role, file in files.items():
                if self._made(file):
                    continue
                path = self._local / file.raw.basename
                with cache_lock(self._room.root, self._name(path)):
                    if _inode(path) == seen.get(role):
                        path.unlink(missing_ok=True)
                        emit(Healed(str(path)))
                        if self._remote is not None and file.zip is not None:
                            (self._local / file.zip.basename).unlink(missing_ok=True)
        return True

    # -- one file -----------------------------------------------------------------

    def _made(self, file: ShardFile) -> Path | None:
        """Return the path of a file that was made from others, if it is one."""
        path = None if self.derived is None else self.derived / file.raw.basename
        return path if path is not None and self._ready(path, file) else None

    def _ensure_file(self, shard: int, file: ShardFile, keep: Keep) -> Path:
        path = self._local / file.raw.basename
        if self.derived is not None and self._remote is None and file.zip is not None:
            path = self.derived / file.raw.basename
        if self._ready(path, file) and self._sound(shard, file, path):
            self._tell_cached(path, file)
            return path
        if self._remote is None and file.zip is None:
            raise self._lost(path, file.raw.bytes)
        with cache_lock(self._room.root, self._name(path)):
            if not self._ready(path, file):  # nobody else fetched it meanwhile
                self._fetch(shard, file, path, keep)
            else:
                self._tell_cached(path, file)
        return path

    def _tell_cached(self, path: Path, file: ShardFile) -> None:
        if self._remote is not None:  # else there is no cache
            emit(Cached(str(path), file.raw.bytes))

    def _ready(self, path: Path, file: ShardFile) -> bool:
        try:
            return path.stat().st_size == file.raw.bytes
        except FileNotFoundError:
            return False

    def _sound(self, shard: int, file: ShardFile, path: Path) -> bool:
        """Check, once in a process and if asked to, a file that was there already.

        Returns:
            False if it is gone, because it was damaged, or evicted.
        """
        name, algorithm = file.raw.basename, self._options.validate_hash
        if algorithm is None or name in self._checked:
            return True
        try:
            seen = path.stat().st_ino
            check_file(path, file.raw, algorithm, str(path))
        except FileNotFoundError:
            return False
        except CorruptShardError as error:
            if not self.discard(shard, dict.fromkeys(self._roles(shard, name), seen)):
                raise
            _LOG.warning("%s: fetching it again", error)
            return False
        self._checked.add(name)
        return True

    def _roles(self, shard: int, name: str) -> list[str]:
        files = self._index.shard(shard).files
        return [role for role, file in files.items() if file.raw.basename == name]

    def _lost(self, path: Path, size: int) -> DataError | NotFound:
        if path.exists():
            return CorruptShardError(
                f"{path} has {path.stat().st_size} bytes, the index says {size}; "
                "it was cut short or replaced, write or copy it again"
            )
        return NotFound(f"{path} does not exist; pass remote= if the set lies elsewhere")

    # -- fetching, under the lock ---------------------------------------------------

    def _fetch(self, shard: int, file: ShardFile, path: Path, keep: Keep) -> None:
        for pause in _PAUSES:
            try:
                self._bring(shard, file, path, keep)
                break
            except OSError as error:
                if isinstance(error, StreamplugError) or not self._mended(error, file):
                    raise
                sleep(pause)
        else:
            self._bring(shard, file, path, keep)
        if self._options.validate_hash is not None:
            self._checked.add(file.raw.basename)

    def _mended(self, error: OSError, file: ShardFile) -> bool:
        """Say whether what the system refused may work now: there is more room, or a new directory."""
        if error.errno in FULL and self.limit is not None:
            self._room.shrink(_room_of(file))
            # What was evicted takes room for as long as anybody has it open; others need some time.
            let_go = self.when_full() if self.when_full is not None else None
            if let_go is not None:
                let_go()
            return True
        return isinstance(error, FileNotFoundError)

    def _bring(self, shard: int, file: ShardFile, path: Path, keep: Keep) -> None:
        if self._remote is None:
            self._unpack_local(shard, file, path)
            return
        name, root = self._name(path), self._room.root
        with self._room.reserved(name, _room_of(file)) as give, scratch(root, name) as part:
            admit, kept = keep.admitting(give, path), None
            if file.zip is None:
                self._download(file.raw, part)
                admit(part, path)
                return
            if self._options.keep_zip and _packed(file):
                kept = self._local / file.zip.basename
                if self._unpack_kept(shard, file, kept, path, admit):
                    return
            self._download(file.zip, part)
            self._unpack(shard, file, part, path, admit)
            if kept is not None:
                admit(part, kept)

    def _download(self, file: FileInfo, part: Path) -> None:
        remote, options = self._remote, self._options
        if remote is not None:
            where = self._where(file.basename)
            with fetching(where, file.bytes):
                download(
                    remote,
                    file,
                    part,
                    retries=options.retries,
                    timeout=options.timeout,
                    check_copy=lambda copy: check_file(copy, file, options.validate_hash, where),
                )

    def _unpack_kept(
        self, shard: int, file: ShardFile, kept: Path, path: Path, admit: Admit
    ) -> bool:
        """Unpack a compressed file that stayed in the cache, if there is one; a damaged one goes."""
        try:
            if file.zip is None or kept.stat().st_size != file.zip.bytes:
                return False
            self._unpack(shard, file, kept, path, admit)
        except FileNotFoundError:  # there is none, or it was evicted just now
            return False
        except DataError as error:
            _LOG.warning("%s, as kept in %s: downloading it again", error, kept)
            kept.unlink(missing_ok=True)
            emit(Healed(str(kept)))
            return False
        return True

    def _unpack_local(self, shard: int, file: ShardFile, path: Path) -> None:
        """Unpack a compressed file of a set that lies here; nothing of that is ever evicted."""
        stored = file.zip or file.raw
        source = self._local / stored.basename
        if not source.exists():
            raise self._lost(source, stored.bytes)
        check_file(source, stored, self._options.validate_hash, self._where(stored.basename))
        self._unpack(shard, file, source, path, _place)

    def _unpack(self, shard: int, file: ShardFile, stored: Path, path: Path, admit: Admit) -> None:
        where = self._where((file.zip or file.raw).basename)
        codec: Compression = make("compression", self._index.schema(shard).compression or "none")
        with (
            open_interruptible(stored) as source,
            scratch(self._room.root, self._name(path)) as part,
        ):
            with part.open("wb") as target:
                try:
                    codec.decompress_stream(source, target, max_size=file.raw.bytes)
                except DataError as error:
                    raise type(error)(f"{where}: {error}; write or copy it again") from error
            check_file(part, file.raw, self._options.validate_hash, f"{where}, decompressed,")
            admit(part, path)

    def _name(self, path: Path) -> str:
        """Return what the locks call a file."""
        root = self._room.root
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name

    def _where(self, basename: str) -> str:
        if self._remote is not None:
            return self._remote.url_of(basename)
        return str(self._local / basename)


def _place(part: Path, path: Path) -> None:
    part.replace(path)


def _packed(file: ShardFile) -> bool:
    """Say whether a raw file is made of another one."""
    return file.zip is not None and file.zip.basename != file.raw.basename


def _room_of(file: ShardFile) -> int:
    return file.raw.bytes + (file.zip.bytes if file.zip is not None else 0)


def _largest(index: Index) -> tuple[int, int]:
    """Return how many bytes the files of the largest shard take, and which one that is."""
    sizes = np.zeros(len(index), np.int64)
    for table in index.tables.values():
        sizes += table.bytes
    shard = int(sizes.argmax())
    return int(sizes[shard]), shard


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
