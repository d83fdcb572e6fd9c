"""Stream: one data set, near or far, as a part of what a StreamingDataset reads."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2s
from pathlib import Path
from typing import Any

from streamplug.errors import (
    CacheConflictError,
    ConfigError,
    NotFound,
    UnsafeTypeError,
)
from streamplug.fetch import FetchOptions, ShardStore
from streamplug.fetch.files import local_errors, partial_file
from streamplug.fetch.retry import retrying
from streamplug.fetch.store import STATE_DIR, cache_lock
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plan import Weight
from streamplug.plugin.location import join, local_path, open_storage


@dataclass(frozen=True)
class Stream:
    """One data set: where it lies, and where its shards are kept while they are read.

    Attributes:
        remote: URL or path of the data set; None if `local` is the data set itself.
        local: Directory for its shards. None reads a remote that is a local path in place, and keeps
            any other in the directory for temporary files.
        split: Sub-directory of both.
        proportion: Share of the epoch, relative to the other streams'; for all streams or none.
        repeat: How often an epoch takes each sample; 1.5 takes half of them twice.
        choose: How many samples an epoch takes.
        download_retry: How often a failed download is tried again.
        validate_hash: Which digest to check. None checks, after a download, a fast one of those that
            the index has.
        keep_zip: Whether compressed files stay beside the raw ones.
        storage_options: Settings of the remote's storage, such as credentials; not part of the repr.
    """

    remote: str | None = None
    local: str | None = None
    split: str | None = None
    proportion: float | None = None
    repeat: float | None = None
    choose: int | None = None
    download_retry: int | None = None
    validate_hash: str | None = None
    keep_zip: bool | None = None
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.remote is None and self.local is None:
            raise ConfigError("a stream needs remote=, local= or both")
        for name in ("remote", "local", "split"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                object.__setattr__(self, name, str(value))
        _ = self.weight  # refuses what has no meaning
        if self.download_retry is not None and self.download_retry < 0:
            raise ConfigError(f"download_retry={self.download_retry}: must be 0 or more")

    @property
    def weight(self) -> Weight:
        """How much of this stream an epoch takes."""
        return Weight(self.proportion, self.repeat, self.choose)

    def __repr__(self) -> str:
        return f"Stream({self._storage().url!r}, local={str(self._directory())!r})"

    def with_defaults(self, **defaults: Any) -> Stream:
        """Return this stream with values for what it leaves open."""
        return replace(self, **{k: v for k, v in defaults.items() if getattr(self, k) is None})

    def open(self) -> OpenStream:
        """Read the index of this stream, and take its local directory into use.

        Raises:
            StorageError: If the index cannot be had.
            InvalidIndexError: If it cannot be used.
            CacheConflictError: If the local directory serves another data set.
        """
        storage, directory = self._storage(), self._directory()
        remote = None if self._in_place() else storage
        where = storage.url_of(INDEX_NAME)
        try:
            data = retrying(lambda: storage.read(INDEX_NAME), self.download_retry or 0)
        except NotFound:
            raise NotFound(
                f"{where} does not exist: there is no data set, or its writer has not finished; "
                "check remote=, local= and split="
            ) from None
        index = parse_index(data, where)
        if remote is not None:
            _take_into_use(directory, remote.url, data)
        options = FetchOptions(
            retries=self.download_retry or 0,
            validate_hash=self.validate_hash,
            keep_zip=bool(self.keep_zip),
        )
        return OpenStream(self, index, ShardStore(index, directory, remote, options), where)

    def _storage(self) -> Storage:
        location = self.remote if self.remote is not None else self.local
        return open_storage(join(location or "", self.split or ""), self.storage_options)

    def _in_place(self) -> bool:
        """Say whether the data set is read where it lies."""
        if self.remote is None:
            return True
        return self.local is None and local_path(self.remote) is not None

    def _directory(self) -> Path:
        path = local_path(self.local or self.remote or "") if self._in_place() else None
        if path is None and self.local is not None:
            path = local_path(self.local)
            if path is None:
                raise ConfigError(f"local={self.local!r} must be a path on this machine")
        if path is None:
            name = blake2s(self._storage().url.encode(), digest_size=16).hexdigest()
            return Path(tempfile.gettempdir()) / "streamplug" / name
        return path / (self.split or "")


@dataclass(frozen=True)
class OpenStream:
    """A stream whose index has been read."""

    stream: Stream
    index: Index
    store: ShardStore
    where: str

    def check_columns(self, wanted: list[str] | None, *, allow_unsafe: bool) -> None:
        """Check the columns that will be read.

        Raises:
            ConfigError: If one of `wanted` does not exist.
            UnsafeTypeError: If decoding one can run code and `allow_unsafe` is false.
        """
        for schema in self.index.schemas:
            names = [column.name for column in schema.columns]
            if missing := sorted(set(wanted or ()) - set(names)):
                raise ConfigError(f"columns={wanted}: {self.where} has no {missing}, only {names}")
            for column in schema.columns:
                read = wanted is None or column.name in wanted
                if read and column.encoding.unsafe and not allow_unsafe:
                    raise UnsafeTypeError(
                        f"{self.where}: column {column.name!r} has encoding {column.spec!r}, which can "
                        "run code from the data; pass allow_unsafe_types=True if you trust its "
                        "writer, or leave the column out with columns="
                    )


def _take_into_use(directory: Path, url: str, index: bytes) -> None:
    """Mark a directory as the cache of a data set, or check that it is.

    Raises:
        CacheConflictError: If it is that of another, or of another version of it.
        StorageError: If it cannot be written to.
    """
    mark = directory / STATE_DIR / "origin.json"
    known = directory / INDEX_NAME
    with local_errors(directory):
        if _in_use(mark, known, url, index):
            return
        with cache_lock(directory, INDEX_NAME):
            if not _in_use(mark, known, url, index):  # nobody else took it meanwhile
                with partial_file(mark) as part:
                    part.write_text(json.dumps({"remote": url}))
                with partial_file(known) as part:
                    part.write_bytes(index)


def _in_use(mark: Path, known: Path, url: str, index: bytes) -> bool:
    """Say whether a directory is this data set's cache already.

    Raises:
        CacheConflictError: If it is that of another, or of another version of it.
    """
    advice = "pass another local=, or remove the directory"
    directory, marked = known.parent, mark.exists()
    if marked:
        try:
            origin = json.loads(mark.read_bytes())["remote"]
        except (ValueError, KeyError, TypeError):
            raise CacheConflictError(f"{mark} is damaged; {advice}") from None
        if origin != url:
            raise CacheConflictError(
                f"{directory} is the cache of {origin}, not of {url}; {advice}"
            )
    if not known.exists():
        return False
    if known.read_bytes() != index:
        why = f"{url} was written again since" if marked else f"it is not the one at {url}"
        raise CacheConflictError(f"{directory} already holds a data set: {why}; {advice}")
    return marked
