"""Makes the raw files of a shard ready on the local disk: downloaded, checked, decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from streamplug.errors import CorruptShardError, DataError, NotFound, StorageError
from streamplug.fetch.files import check_file, local_errors, partial_file, scratch_file
from streamplug.fetch.retry import retrying
from streamplug.index import Index
from streamplug.interfaces import Compression, ShardFile, Storage
from streamplug.plugin.registry import make
from streamplug.types import FileInfo

STATE_DIR = ".streamplug"
"""Directory inside a cache for what streamplug keeps beside the shards."""

_LOCKS = 64
_LOCK_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How files come from a remote.

    Attributes:
        retries: How often a failed download is tried again.
        validate_hash: Which digest to check; None for a fast one of those that the index has.
        keep_zip: Whether compressed files stay in the cache beside the raw ones.
    """

    retries: int = 2
    validate_hash: str | None = None
    keep_zip: bool = False


@contextmanager
def cache_lock(directory: Path, basename: str) -> Iterator[None]:
    """Keep other processes from writing a file of a cache; the lock goes with whoever holds it.

    Raises:
        StorageError: If another process does not let go of it.
    """
    # A fixed number of lock files, shared by the shards: they stay behind, empty.
    path = directory / STATE_DIR / f"lock.{zlib.crc32(basename.encode()) % _LOCKS:02d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=_LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise StorageError(
            f"{path} has been held by another process for {_LOCK_SECONDS} s, to fetch "
            f"{basename}; see what that process waits for"
        ) from None
    try:
        yield
    finally:
        lock.release()


class ShardStore:
    """The local files of one stream's shards.

    A raw file that is there is whole: files get their final name only after they were checked.
    Several processes may share one directory; of those that want a shard, one fetches it.
    """

    def __init__(
        self, index: Index, local: Path, remote: Storage | None, options: FetchOptions
    ) -> None:
        """Keep the shards of `index` in `local`; without a remote they must be there already."""
        self._index = index
        self._local = local
        self._remote = remote
        self._options = options
        self._checked: set[str] = set()

    @property
    def fetches(self) -> bool:
        """Whether shards may have to be downloaded or decompressed."""
        return self._remote is not None or self._index.compressed

    def ensure(self, shard: int) -> Mapping[str, Path]:
        """Return the paths of a shard's raw files by role, fetching them if need be.

        Raises:
            StorageError: If a file cannot be downloaded.
            DataError: If a file is damaged.
        """
        info = self._index.shard(shard)
        with local_errors(self._local):
            return {role: self._ensure_file(shard, file) for role, file in info.files.items()}

    def _ensure_file(self, shard: int, file: ShardFile) -> Path:
        path = self._local / file.raw.basename
        if self._ready(path, file):
            self._check_local(shard, file, path)
            return path
        if self._remote is None and file.zip is None:
            raise self._lost(shard, path, file.raw.bytes)
        with cache_lock(self._local, file.raw.basename):
            if not self._ready(path, file):  # nobody else fetched it meanwhile
                try:
                    self._fetch(shard, file, path)
                except DataError as error:
                    raise type(error)(f"shard {shard}: {error}") from error.__cause__
        return path

    def _ready(self, path: Path, file: ShardFile) -> bool:
        try:
            return path.stat().st_size == file.raw.bytes
        except FileNotFoundError:
            return False

    def _check_local(self, shard: int, file: ShardFile, path: Path) -> None:
        """Check, once in a process, a file of a set that was not downloaded."""
        name = file.raw.basename
        if self._remote is None and self._options.validate_hash and name not in self._checked:
            check_file(path, file.raw, self._options.validate_hash, f"shard {shard}: {path}")
            self._checked.add(name)

    def _lost(self, shard: int, path: Path, size: int) -> DataError | NotFound:
        if path.exists():
            return CorruptShardError(
                f"shard {shard}: {path} has {path.stat().st_size} bytes, the index says {size}; "
                "it was cut short or replaced, write or copy it again"
            )
        return NotFound(
            f"shard {shard}: {path} does not exist; pass remote= if the set lies elsewhere"
        )

    def _fetch(self, shard: int, file: ShardFile, path: Path) -> None:
        stored = file.zip or file.raw
        if self._remote is None:
            source = self._local / stored.basename
            if not source.exists():
                raise self._lost(shard, source, stored.bytes)
            check_file(source, stored, self._options.validate_hash, self._where(stored.basename))
            self._unpack(shard, file, source, path)
        elif file.zip is None:
            with partial_file(path) as part:
                self._download(file.raw, part)
        elif self._options.keep_zip:
            source = self._local / stored.basename
            if not (source.exists() and source.stat().st_size == stored.bytes):
                with partial_file(source) as part:
                    self._download(stored, part)
            self._unpack(shard, file, source, path)
        else:
            with scratch_file(self._local / stored.basename) as part:
                self._download(stored, part)
                self._unpack(shard, file, part, path)

    def _download(self, file: FileInfo, part: Path) -> None:
        remote = self._remote
        if remote is not None:
            part.parent.mkdir(parents=True, exist_ok=True)
            retrying(lambda: remote.download(file.basename, part), self._options.retries)
            check_file(part, file, self._options.validate_hash, self._where(file.basename))

    def _unpack(self, shard: int, file: ShardFile, stored: Path, path: Path) -> None:
        where = self._where((file.zip or file.raw).basename)
        codec: Compression = make("compression", self._index.schema(shard).compression or "none")
        with partial_file(path) as part:
            with stored.open("rb") as source, part.open("wb") as target:
                try:
                    codec.decompress_stream(source, target, max_size=file.raw.bytes)
                except DataError as error:
                    raise type(error)(f"{where}: {error}; write or copy it again") from error
            check_file(part, file.raw, self._options.validate_hash, f"{where}, decompressed,")

    def _where(self, basename: str) -> str:
        if self._remote is not None:
            return self._remote.url_of(basename)
        return str(self._local / basename)
