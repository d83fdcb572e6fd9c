"""Writers with the attributes and methods that they have in mosaicml-streaming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import streamplug
from streamplug.config import parameters, suggest_name
from streamplug.errors import ConfigError, EncodeError
from streamplug.interfaces import Encoding, WriteSettings
from streamplug.types import Buffer
from streamplug.write import make_columns, make_encoder
from streamplug_mosaic.compat.checks import unknown_specs
from streamplug_mosaic.compat.parser import bytes_to_int

if TYPE_CHECKING:
    _Base = streamplug.Writer
else:
    _Base = object

_SEPARATORS = {"CSVWriter": ",", "TSVWriter": "\t"}


class MosaicWriter(_Base):
    """Attributes and methods of mosaicml-streaming for a writer of streamplug.

    Other keys of a sample than the columns are ignored; `size_limit` and `compression` may be empty.
    """

    def __init__(self, **kwargs: Any) -> None:
        known = parameters(type(self))
        for name in kwargs:
            if name not in known:
                raise ConfigError(f"Invalid Writer argument {name!r}{suggest_name(name, known)}")
        limit = kwargs.get("size_limit", 1 << 26)
        kwargs["size_limit"] = limit = bytes_to_int(limit) if limit else None
        if limit is not None and not 0 < limit < 1 << 32:
            raise ConfigError(
                f"`size_limit` must be less than 2**32 bytes and above 0, got {limit}"
            )
        kwargs["compression"] = kwargs.get("compression") or None
        hashes = kwargs.get("hashes") or []
        if list(hashes) != sorted(set(hashes)):
            raise ConfigError(f"hashes={hashes}: must be sorted, without repetitions")
        # No hashes and sizes by default, so that files have the same bytes as there.
        defaults = {"extra_keys": "ignore", "value_sizes": False}
        with unknown_specs():
            super().__init__(**{**defaults, **kwargs, "hashes": list(hashes)})
        self.columns: dict[str, str] = dict(kwargs["columns"])
        self.compression: str | None = kwargs["compression"]
        self.hashes: list[str] = list(hashes)
        self.size_limit: int | None = limit
        self.keep_local: bool = kwargs.get("keep_local", False)
        for name in ("separator", "newline"):  # of text
            if name not in dir(type(self)) and name in self.get_config():
                setattr(self, name, self.get_config()[name])

    def _check_size_limit(self, size_limit: float | str | None) -> None:
        """Take any: a sample above the limit has a shard of its own."""

    @property
    def local(self) -> str:
        """Directory of the shards."""
        return str(self._destination.folder)

    @property
    def remote(self) -> str | None:
        """URL of the upload; None without."""
        return None if self._destination.storage is None else self._destination.storage.url

    @property
    def format(self) -> str:
        """Name of the format."""
        return str(self.get_config()["format"])

    @property
    def column_names(self) -> list[str]:
        """Sorted column names."""
        return sorted(self.columns)

    @property
    def column_encodings(self) -> list[str]:
        """Encodings by sorted column name."""
        return [self.columns[name] for name in self.column_names]

    @property
    def shards(self) -> list[dict[str, Any]]:
        """Index entries of the shards that were written."""
        return self._entries

    @property
    def new_samples(self) -> range:
        """Samples of the current shard; only their number is known."""
        return range(self._num_rows + len(self._single_sizes))

    @property
    def new_shard_size(self) -> int:
        """Size of the current shard in bytes."""
        return self._size

    @property
    def extra_bytes_per_shard(self) -> int:
        """Bytes of a shard without samples, as counted for `size_limit`."""
        return self._rows.base_size

    @property
    def extra_bytes_per_sample(self) -> int:
        """Bytes of a sample without values, as counted for `size_limit`."""
        return self._rows.row_overhead

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Encode a sample.

        Raises:
            EncodeError: If a column is missing, or a value cannot be encoded.
        """
        return b"".join(self._encode(sample)[0])

    def get_config(self) -> dict[str, Any]:
        """Return the index entry of a shard without its files."""
        return dict(self._rows.entry())

    def flush_shard(self) -> None:
        """Write the current shard, unless it is empty, and start the next.

        Raises:
            WriterError: If the data set is complete.
        """
        self._check_open()
        if self._num_rows or self._single_sizes:
            self._flush()


class AllowEncodedBytes(Encoding):
    """An encoding that also takes encoded values: bytes that it can decode are stored as they are.

    Programs for mosaicml-streaming write encoded values, for example the bytes of a text as a `str`.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self.size = encoding.size

    def encode(self, value: Any) -> bytes:
        try:
            return self._encoding.encode(value)
        except (EncodeError, TypeError, ValueError, OverflowError, AttributeError):
            if not (isinstance(value, bytes) and self._decodes(value)):
                raise
            return value

    def decode(self, data: memoryview) -> Any:
        return self._encoding.decode(data)

    def _decodes(self, data: bytes) -> bool:
        try:
            self.decode(memoryview(data))
        except Exception:  # noqa: BLE001 - decoders may raise any for bytes that are not a value
            return False
        return True


class MDSWriter(MosaicWriter, streamplug.MDSWriter):
    """A `streamplug.MDSWriter` with the attributes of mosaicml-streaming.

    It also takes encoded values, as bytes.

    Args:
        columns: Encoding of each column by its name.
        out: A local path, a URL, or a pair of both.
        keep_local: Whether to keep local files after the upload.
        compression: Name, with a level after a colon; None without.
        hashes: Names of the hashes in the index, sorted.
        size_limit: Maximum size of a shard in bytes; None for a single shard.
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
        self._extra_keys: str = kwargs.get("extra_keys", "ignore")
        self._encode_strictly, self._encode = self._encode, self._encode_or_store_bytes

    def _encode_or_store_bytes(self, sample: Any) -> tuple[Sequence[Buffer], int]:
        try:
            return self._encode_strictly(sample)
        except EncodeError:
            values = sample.values() if isinstance(sample, Mapping) else ()
            if not any(isinstance(value, bytes) for value in values):
                raise
        columns = [
            replace(column, encoding=AllowEncodedBytes(column.encoding))
            for column in make_columns(self.columns, self._format)
        ]
        # It only encodes samples: the shards are assembled by the writer that there is.
        rows = self._format.writer(columns, WriteSettings(None, (), None))
        encode = make_encoder(columns, rows.encode_pieces, self._extra_keys)
        encoded = encode(sample)
        self._encode = encode  # later samples have encoded values, too
        return encoded

    @property
    def column_sizes(self) -> list[int | None]:
        """Size of the values of each column in bytes, by column name; None if it varies."""
        sizes: list[int | None] = self.get_config()["column_sizes"]
        return sizes


@cache
def text_writer(name: str) -> type:
    """Return a writer of text, such as ``"CSVWriter"``.

    Raises:
        ImportError: If streamplug-text is not installed.
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
