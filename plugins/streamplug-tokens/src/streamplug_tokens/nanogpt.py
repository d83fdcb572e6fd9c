"""The format of the token files of nanoGPT, llm.c and modded-nanogpt.

Those of nanoGPT are tokens alone, little-endian. Others begin with a header of 256 int32: a magic number,
which tells the dtype of the tokens, a version, the number of tokens, and zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np
from streamplug_files import ScannableFormat, ScanResult, ScanSource

from streamplug.errors import ConfigError, CorruptShardError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    Encoding,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
)
from streamplug.types import Bytes1D
from streamplug_tokens.token_files import TOKENS, TokenFileReader, TokenHeader, Tokens

BLOCK_TOKENS = 1 << 16
"""Default tokens of a sample: few enough for range requests, and far more than a row has."""

_HEADER_BYTES = 1024
_HEAD = Struct("<iii")
_HEADERS = {20240520: (1, "uint16"), 20240801: (7, "uint32")}
"""Version and dtype by magic number."""
_EVALUATION_MAGIC = 20240522
_DTYPES = ("uint8", "uint16", "uint32", "int32", "int64")
_MAX_BLOCK = 1 << 40


class NanoGPT(ScannableFormat, RangeReadableFormat):
    """``nanogpt``: token files of nanoGPT, llm.c and modded-nanogpt, a sample being a block of `tokens`.

    After a colon, options separated by commas: the dtype of files without a header, which is uint16 by
    default, and ``block=N``, the tokens of a sample. The last sample of a file may be shorter. In indexes,
    ``header`` follows if the files have one.
    """

    suffix = "bin"

    def __init__(
        self, *, dtype: str | None = None, block: int = BLOCK_TOKENS, header: bool = False
    ) -> None:
        """Read blocks of tokens; `dtype` None is that of the header, or uint16."""
        self._dtype, self._block, self._header = dtype, block, header

    @classmethod
    def from_spec(cls, argument: str | None) -> NanoGPT:
        options: dict[str, Any] = {}
        for option in argument.split(",") if argument else ():
            name, _, value = option.partition("=")
            if option in _DTYPES:
                options["dtype"] = option
            elif name == "block" and value.isdecimal() and 0 < int(value[:20]) <= _MAX_BLOCK:
                options["block"] = int(value)
            elif option == "header":
                options["header"] = True
            else:
                raise ConfigError(
                    f"format nanogpt:{argument}: {option!r} is none of {', '.join(_DTYPES)}, block=TOKENS"
                )
        return cls(**options)

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        specs = entry.get("columns")
        if not isinstance(specs, dict) or [*specs] != [TOKENS] or specs[TOKENS] not in _DTYPES:
            raise InvalidIndexError(f"columns must be the dtype of tokens, got {specs!r:.60}")
        return (Column(TOKENS, specs[TOKENS], Tokens(np.dtype(specs[TOKENS]).newbyteorder("<"))),)

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        return TokenFileReader(files["data"], self._locate(shard, columns))

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, 0  # the size of the file tells all

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        return self._locate(shard, columns)

    def _locate(self, shard: ShardInfo, columns: Sequence[Column]) -> TokenHeader:
        dtype, begin = columns[0].encoding.item, _HEADER_BYTES * self._header
        size = shard.files["data"].raw.bytes
        item_bytes = int(dtype.itemsize)  # type: ignore[union-attr]  # of tokens
        count, rest = divmod(size - begin, item_bytes)
        if rest or -(-count // self._block) != shard.samples:
            raise CorruptShardError(
                f"{size} bytes are not {shard.samples} samples of {self._block} tokens of {dtype}"
            )
        return TokenHeader(
            shard.samples,
            lambda rows: np.minimum(rows * self._block, count),
            item_bytes=item_bytes,
            begin=begin,
        )

    def scan(self, file: ScanSource) -> ScanResult:
        head = file.read(0, _HEADER_BYTES)
        magic = _HEAD.unpack_from(head)[0] if len(head) >= _HEAD.size else 0
        has_header = magic in _HEADERS
        if magic == _EVALUATION_MAGIC:
            raise CorruptShardError(
                "it has examples for an evaluation by llm.c, and not the tokens of documents"
            )
        dtype = np.dtype(self._check_header(head) if has_header else self._dtype or "uint16")
        count, rest = divmod(file.size - _HEADER_BYTES * has_header, dtype.itemsize)
        if has_header and (rest or count != _HEAD.unpack_from(head)[2]):
            raise CorruptShardError(
                f"its header announces {_HEAD.unpack_from(head)[2]} tokens of {dtype.name}, but "
                f"{file.size - _HEADER_BYTES} bytes follow: it was cut short; copy or write it again"
            )
        if rest:
            raise CorruptShardError(
                f"{file.size} bytes are not a whole number of tokens of {dtype.name}: it was cut short, or "
                "has another dtype, which is passed as format='nanogpt:uint32'"
            )
        if not count:
            raise CorruptShardError("it has no tokens")
        spec = ",".join([f"block={self._block}", *(["header"] if has_header else [])])
        entry = {"columns": {TOKENS: dtype.name}, "format": f"nanogpt:{spec}", "version": 2}
        return ScanResult(-(-count // self._block), entry)

    def _check_header(self, head: bytes) -> str:
        """Return the dtype that a header tells."""
        if len(head) < _HEADER_BYTES:
            raise CorruptShardError(
                f"its header of {_HEADER_BYTES} bytes is cut off after {len(head)}"
            )
        magic, version, _ = _HEAD.unpack_from(head)
        expected, dtype = _HEADERS[magic]
        if version != expected:
            raise CorruptShardError(
                f"its header, of magic number {magic}, has version {version}, expected {expected}"
            )
        if self._dtype not in (None, dtype):
            raise ConfigError(
                f"format 'nanogpt:{self._dtype}': the header of a file says that its tokens are {dtype}; "
                "pass format='nanogpt'"
            )
        return dtype

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        if any(entry != entries[0] for entry in entries):
            raise InvalidIndexError(
                "some files have a header, or another dtype, and others have not: read those of one kind as "
                "a stream of their own, in streams="
            )
        return entries[0]
