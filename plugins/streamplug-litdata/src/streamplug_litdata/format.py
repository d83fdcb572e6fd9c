"""The LitData shard format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from streamplug_files import DatasetFiles, IndexImportFormat

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
from streamplug_litdata.chunk_compression import MAGIC, FramesReader, PackedHead
from streamplug_litdata.index_import import entries_of, is_index
from streamplug_litdata.items import ItemsHead, ItemsReader, head_size, offsets_of
from streamplug_litdata.row_chunks import RowsReader, has_rows
from streamplug_litdata.specs import Options, Spec
from streamplug_litdata.tokens import BlocksHeader, BlocksReader, TokenBlock, TokensHeader
from streamplug_litdata.values import Vector

_LAYOUTS = ("items", "frames", "packed", "tokens")
_LARGEST = 1 << 26
"""Maximum tokens of a block: NumPy has no items of 2 GiB, and a token has up to 16 bytes."""
_DIGITS = 20


class LitData(IndexImportFormat, RangeReadableFormat):
    """``litdata``: the chunks that LitData's `optimize` writes, with its index.json.

    After a colon, options separated by commas: ``pil`` decodes columns of JPEG and other image files to
    Pillow images (requires streamplug-image), ``raw`` returns values of custom serializers as bytes, and
    ``block=N`` reads tokens in blocks of N. In indexes the layout of the chunks follows: ``items``,
    ``frames``, ``packed`` or ``tokens``.
    """

    suffix = "bin"
    first_index_key = "chunks"

    def __init__(
        self, *, pil: bool = False, raw: bool = False, block: int | None = None, layout: str = ""
    ) -> None:
        """Set the layout of the chunks; without one, only LitData's index.json can be read."""
        self._options, self._block, self._layout = Options(pil, raw), block, layout
        said = {"pil": pil, "raw": raw, f"block={block}": block is not None}
        self._spec = "".join(f"{option}," for option, is_set in said.items() if is_set)

    @classmethod
    def from_spec(cls, argument: str | None) -> LitData:
        options: dict[str, Any] = {}
        for option in argument.split(",") if argument else ():
            name, equals, value = option.partition("=")
            if name in ("pil", "raw") and not equals:
                options[name] = True
            elif name == "block" and value.isdecimal() and 0 < int(value[:_DIGITS]) <= _LARGEST:
                options["block"] = int(value)
            elif option in _LAYOUTS:
                options["layout"] = option
            else:
                raise ConfigError(
                    f"format litdata:{argument}: {option!r} is none of pil, raw, block=TOKENS"
                )
        return cls(**options)

    def import_index(self, index: Any, files: DatasetFiles) -> Sequence[Mapping[str, Any]] | None:
        if not is_index(index):
            return None
        return entries_of(index, f"litdata:{self._spec}", self._block, files)

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        if not self._layout:
            raise InvalidIndexError("format litdata needs a layout, such as litdata:items")
        said = entry.get("columns")
        if not isinstance(said, list) or not said or not all(map(_is_pair, said)):
            raise InvalidIndexError(f"columns must be pairs of name and leaves, got {said!r:.60}")
        if len({name for name, _ in said}) != len(said):
            raise InvalidIndexError("columns must have names of their own")
        columns = []
        for name, text in said:
            encoding = Spec.parse(text).encoding(name, self._options, make_encoding)
            if self._block is not None and isinstance(encoding, Vector):
                encoding = TokenBlock(encoding.item, self._block)
            columns.append(Column(name, text, encoding))
        return tuple(columns)

    def check(self, samples: int, role: str, size: int) -> None:
        least = 4 if self._block is not None else head_size(samples)
        if least > size:
            raise InvalidIndexError(f"{samples} samples cannot lie in a file of {size} bytes")

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        data, samples = files["data"], shard.samples
        if self._block is not None:
            return BlocksReader(data, samples, self._blocks_head(data, samples, len(data), columns))
        if self._layout == "tokens":
            return ItemsReader(data, TokensHeader(_offsets(data, samples, len(data)), columns))
        if has_rows(data):
            return RowsReader(data, samples, columns)
        if data[: len(MAGIC)].tobytes() == MAGIC:
            return FramesReader(data, samples, columns)
        if self._layout == "frames":
            raise CorruptShardError(f"it does not begin with {MAGIC!r}, as chunks of frames do")
        head = PackedHead if self._layout == "packed" else ItemsHead
        return ItemsReader(data, head(_offsets(data, samples, len(data)), columns))

    def header_range(self, shard: ShardInfo) -> tuple[int, int] | None:
        if self._layout == "frames":
            return None
        return 0, 4 if self._block is not None else head_size(shard.samples)

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        size = shard.files["data"].raw.bytes
        if self._block is not None:
            return self._blocks_head(head, shard.samples, size, columns)
        offsets = _offsets(head, shard.samples, size, rows=self._layout != "tokens")
        kinds = {"packed": PackedHead, "tokens": TokensHeader}
        return kinds.get(self._layout, ItemsHead)(offsets, columns)

    def _blocks_head(
        self, head: Bytes1D, blocks: int, size: int, columns: Sequence[Column]
    ) -> BlocksHeader:
        # A custom decoder may have replaced the encoding.
        encoding = Spec.parse(columns[0].spec).encoding(columns[0].name, self._options, _none)
        if not isinstance(encoding, Vector):
            raise InvalidIndexError("blocks are of tokens")
        return BlocksHeader(head, blocks, size, encoding.item.itemsize * (self._block or 0))


def _none(name: str, spec: str) -> Encoding:
    raise InvalidIndexError(f"column {name!r}, {spec!r}: blocks are of tokens")


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair)


def _offsets(head: Bytes1D, items: int, size: int, *, rows: bool = False) -> Any:
    """Return the offsets of items in a chunk of `size` bytes."""
    offsets = offsets_of(head, items)
    if items and rows and np.all(offsets == offsets[0]) and size > offsets[0]:
        raise ConfigError(
            "access='range': its rows are in Arrow, which cannot be read one by one; pass access='shard'"
        )
    if offsets[-1] != size:
        hint = " (if its rows follow in Arrow, pass access='shard')"
        raise CorruptShardError(
            f"its items end at byte {offsets[-1]}, the file at {size}"
            + (hint if rows and offsets[-1] < size else "")
        )
    return offsets
