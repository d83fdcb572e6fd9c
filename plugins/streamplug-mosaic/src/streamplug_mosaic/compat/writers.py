"""Writers with what scripts for mosaicml-streaming read of them, and call."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import streamplug
from streamplug.config.fit import hint_of
from streamplug.config.parameters import parameters
from streamplug.errors import ConfigError, WriterError
from streamplug_mosaic.compat.sizes import bytes_to_int

if TYPE_CHECKING:
    _Base = streamplug.Writer
else:
    _Base = object

_SEPARATORS = {"CSVWriter": ",", "TSVWriter": "\t"}


class MosaicWriter(_Base):
    """What writers of mosaicml-streaming have besides those of streamplug.

    Keys of a sample that are no columns are ignored, and `size_limit` and `compression` may be empty.
    """

    def __init__(self, **kwargs: Any) -> None:
        known = parameters(type(self))
        for name in kwargs:
            if name not in known:
                raise ConfigError(f"Invalid Writer argument {name!r}{hint_of(name, known)}")
        limit = kwargs.get("size_limit", 1 << 26)
        kwargs["size_limit"] = limit = bytes_to_int(limit) if limit else None
        if limit is not None and not 0 < limit < 1 << 32:
            raise ConfigError(
                f"`size_limit` must be less than 2**32 bytes and above 0, got {limit}"
            )
        kwargs["compression"] = kwargs.get("compression") or None
        hashes = kwargs.get("hashes") or []
        if list(hashes) != sorted(set(hashes)):
            raise ConfigError(f"hashes={hashes}: must be sorted, and each there once")
        # No digests rather than those that streamplug chooses: the files have the same bytes as there.
        super().__init__(**{"extra_keys": "ignore", **kwargs, "hashes": list(hashes)})
        self.columns: dict[str, str] = dict(kwargs["columns"])
        self.compression: str | None = kwargs["compression"]
        self.hashes: list[str] = list(hashes)
        self.size_limit: int | None = limit
        self.keep_local: bool = kwargs.get("keep_local", False)
        for name in ("separator", "newline"):  # of text
            if name not in dir(type(self)) and name in self.get_config():
                setattr(self, name, self.get_config()[name])

    @property
    def local(self) -> str:
        """The directory that shards are written to."""
        return str(self._target.folder)

    @property
    def remote(self) -> str | None:
        """Where they are uploaded to; None if nowhere."""
        return None if self._target.storage is None else self._target.storage.url

    @property
    def format(self) -> str:
        """Name of the format."""
        return str(self.get_config()["format"])

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, sorted."""
        return sorted(self.columns)

    @property
    def column_encodings(self) -> list[str]:
        """Encodings of the columns, in the order of their names."""
        return [self.columns[name] for name in self.column_names]

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The entries in the index of the shards that were written so far."""
        return self._entries

    @property
    def new_samples(self) -> range:
        """The samples that wait for their shard to be written; only their number is known."""
        return range(self._count + len(self._sizes))

    @property
    def new_shard_size(self) -> int:
        """Bytes of the shard that samples are collected for."""
        return self._size

    @property
    def extra_bytes_per_shard(self) -> int:
        """Bytes of a shard besides its samples, as counted against the size limit."""
        return self._rows.base_size

    @property
    def extra_bytes_per_sample(self) -> int:
        """Bytes of each sample besides its values, as counted against the size limit."""
        return self._rows.row_overhead

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Return the bytes that a sample is stored as.

        Raises:
            EncodeError: If it lacks a column, or a value cannot be stored.
        """
        return b"".join(self._encode(sample)[0])

    def get_config(self) -> dict[str, Any]:
        """Return what the index says of each shard besides its files."""
        return dict(self._rows.entry())

    def flush_shard(self) -> None:
        """Write what was collected as a shard, and begin the next; nothing if nothing was.

        Raises:
            WriterError: If the data set is complete.
        """
        if self._closed:
            raise WriterError(f"{self._closed}; make a new writer for another one")
        if self._count or self._sizes:
            self._flush()


class MDSWriter(MosaicWriter, streamplug.MDSWriter):
    """A `streamplug.MDSWriter` with what scripts for mosaicml-streaming read of it.

    Args:
        columns: Encoding of each column by its name.
        out: A local path, a URL, or a pair of both.
        keep_local: Whether local files stay after they were uploaded.
        compression: Name, and level after a colon; None for none.
        hashes: Names of the digests that the index shall have, sorted.
        size_limit: Bytes of a shard above which the next is begun; None for a single one.
        kwargs: As for `streamplug.Writer`.

    Raises:
        ConfigError: As for `streamplug.Writer`.
    """

    def __init__(
        self,
        *,
        columns: dict[str, str],
        out: Any,
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: float | str | None = 1 << 26,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            columns=columns,
            out=out,
            keep_local=keep_local,
            compression=compression,
            hashes=hashes,
            size_limit=size_limit,
            **kwargs,
        )

    @property
    def column_sizes(self) -> list[int | None]:
        """Bytes of each column's values, in the order of their names; None where they differ."""
        sizes: list[int | None] = self.get_config()["column_sizes"]
        return sizes


@cache
def text_writer(name: str) -> type:
    """Return a writer of text, such as ``"CSVWriter"``, of the plugin that has it.

    Raises:
        ImportError: If the plugin is not installed; the text says what to install.
    """
    try:
        module = import_module("streamplug_text")
    except ModuleNotFoundError as error:
        if error.name != "streamplug_text":
            raise
        raise ImportError(f"{name} comes with a plugin: pip install streamplug-text") from None
    members = {"__doc__": getattr(module, name).__doc__, "__module__": __name__}
    if name in _SEPARATORS:
        members["separator"] = _SEPARATORS[name]
    return type(name, (MosaicWriter, getattr(module, name)), members)


def __getattr__(name: str) -> Any:  # so that a class of text_writer can be pickled
    if name in ("CSVWriter", "JSONWriter", "TSVWriter", "XSVWriter"):
        return text_writer(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
