"""The format of Megatron-LM's data sets: tokens in a file ``.bin``, and their places in an ``.idx``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from streamplug_files import ScannableFormat, ScanResult, ScanSource

from streamplug.errors import CorruptShardError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    Encoding,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
)
from streamplug.types import Bytes1D
from streamplug_tokens.megatron_index import parse_megatron_index
from streamplug_tokens.token_files import TOKENS, TokenFileReader, TokenHeader, Tokens

_OFFSET_BYTES = 8
_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16")


class Megatron(ScannableFormat, RangeReadableFormat):
    """``megatron``: data sets of Megatron-LM, a sample being a sequence, with its `tokens`.

    The sequences of multimodal data sets have a `mode`, too. A location that does not end in ``.bin`` or a
    slash is the prefix of a ``.bin`` and an ``.idx``, as in Megatron's own options.
    """

    suffix = "bin"
    companion_suffix = "idx"
    roles: ClassVar[tuple[str, ...]] = ("data", "offsets")
    header_role: ClassVar[str] = "offsets"

    @classmethod
    def complete_location(cls, location: str) -> str:
        return f"{location}.{cls.suffix}"

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        specs = entry.get("columns")
        known = ({TOKENS}, {TOKENS, "mode"})
        if not isinstance(specs, dict) or {*specs} not in known or specs[TOKENS] not in _DTYPES:
            raise InvalidIndexError(
                f"columns must be the dtype of {TOKENS}, and perhaps mode, got {specs!r:.60}"
            )
        dtype = np.dtype(specs[TOKENS]).newbyteorder("<")
        columns = [Column(TOKENS, specs[TOKENS], Tokens(dtype))]
        if "mode" in specs:
            columns.append(Column("mode", "int8", make_encoding("mode", "int8")))
        return tuple(columns)

    def check(self, samples: int, role: str, size: int) -> None:
        if role == "offsets" and size < _OFFSET_BYTES * (samples + 1):
            raise InvalidIndexError(f"{size} bytes cannot place {samples} samples")

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        return TokenFileReader(files["data"], _header(shard, files["offsets"], columns))

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, shard.files["offsets"].raw.bytes

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        return _header(shard, head, columns)

    def scan(self, file: ScanSource) -> ScanResult:
        stem = file.name.rpartition("/")[2].rpartition(".")[0]
        data = file.read_sibling(f"{stem}.{self.companion_suffix}")
        if data is None:
            raise CorruptShardError(
                f"there is no {stem}.idx beside it, without which its sequences are not known; for a .bin of "
                "nanoGPT or llm.c pass format='nanogpt'"
            )
        index = parse_megatron_index(data, file.size)
        specs = {TOKENS: index.dtype.name, **({} if index.modes is None else {"mode": "int8"})}
        entry = {"columns": specs, "format": "megatron", "version": 2}
        content = index.offsets.astype("<i8").tobytes()
        content += b"" if index.modes is None else index.modes.tobytes()
        return ScanResult(len(index.offsets) - 1, entry, {"offsets": content})


def _header(shard: ShardInfo, content: Bytes1D, columns: Sequence[Column]) -> TokenHeader:
    """Return the header in the file of offsets, behind which are the modes."""
    samples, size = shard.samples, shard.files["data"].raw.bytes
    item_bytes = int(columns[0].encoding.item.itemsize)  # type: ignore[union-attr]  # of tokens
    end = _OFFSET_BYTES * (samples + 1)
    offsets = content[:end].view("<i8")
    if len(offsets) != samples + 1 or offsets[0] != 0 or offsets[-1] * item_bytes != size:
        raise CorruptShardError(
            f"what was found in it before is not of {samples} samples in {size} bytes"
        )
    modes = {} if len(columns) == 1 else {"mode": content[end:]}
    if any(len(values) != samples for values in modes.values()):
        raise CorruptShardError(
            f"what was found in it before has not the modes of {samples} samples"
        )
    return TokenHeader(samples, offsets.__getitem__, item_bytes=item_bytes, others=modes)
