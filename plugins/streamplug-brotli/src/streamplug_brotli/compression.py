"""Brotli compression."""

from __future__ import annotations

from typing import ClassVar

import brotli

from streamplug.plugin_kit import FrameDecoder, StreamingCompression
from streamplug.types import Buffer


class Brotli(StreamingCompression):
    """Brotli (``br``, levels 0 to 11)."""

    suffix: ClassVar[str] = "br"
    levels: ClassVar[range] = range(12)
    default_level: ClassVar[int] = 11
    errors: ClassVar[tuple[type[Exception], ...]] = (brotli.error,)
    concatenated: ClassVar[bool] = False

    def compress(self, data: Buffer) -> bytes:
        stream: bytes = brotli.compress(data, quality=self.level)
        return stream

    def make_decoder(self) -> FrameDecoder:
        return _Stream()


class _Stream:
    """Adapter of brotli's decompressor to the interface of the other decoders."""

    # brotli itself raises for bytes after the end of the stream.
    unused_data = b""

    def __init__(self) -> None:
        self._inner = brotli.Decompressor()
        self.eof = False
        self.needs_input = True

    def decompress(self, data: bytes, /, max_length: int) -> bytes:
        chunk: bytes = self._inner.process(data, output_buffer_limit=max_length)
        self.eof = self._inner.is_finished()
        # After a full chunk, more output may be pending even if all input was consumed.
        self.needs_input = len(chunk) < max_length and self._inner.can_accept_more_data()
        return chunk
