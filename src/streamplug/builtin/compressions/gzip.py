"""gzip, from the standard library."""

from __future__ import annotations

import gzip
import zlib
from typing import ClassVar

from streamplug.plugin_kit import FrameDecoder, StreamingCompression
from streamplug.types import Buffer

_WBITS = 16 + zlib.MAX_WBITS
"""Window size for zlib that selects a gzip header and trailer."""


class Gzip(StreamingCompression):
    """gzip (``gz``, levels 0 to 9)."""

    suffix: ClassVar[str] = "gz"
    levels: ClassVar[range] = range(10)
    default_level: ClassVar[int] = 9
    errors: ClassVar[tuple[type[Exception], ...]] = (zlib.error,)
    level: int

    def compress(self, data: Buffer) -> bytes:
        # Without mtime=0 the header contains the time, and the output is not deterministic.
        return gzip.compress(data, self.level, mtime=0)

    def make_decoder(self) -> FrameDecoder:
        return _Member()


class _Member:
    """An adapter of zlib's decompressor of one gzip member to the interface of the other decoders."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_WBITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, /, max_length: int) -> bytes:
        chunk = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # A full chunk may be followed by more output even if all input is consumed.
        self.needs_input = len(chunk) < max_length
        return chunk
