"""LZ4 compression in the frame format."""

from __future__ import annotations

from typing import ClassVar

import lz4.frame

from streamplug.plugin_kit import FrameDecoder, StreamingCompression
from streamplug.types import Buffer


class LZ4(StreamingCompression):
    """LZ4 frames (``lz4``, levels 0 to 16), with a checksum."""

    suffix: ClassVar[str] = "lz4"
    levels: ClassVar[range] = range(17)
    default_level: ClassVar[int] = 0
    errors: ClassVar[tuple[type[Exception], ...]] = (RuntimeError,)

    def compress(self, data: Buffer) -> bytes:
        frame: bytes = lz4.frame.compress(
            data, compression_level=self.level, content_checksum=True, store_size=True
        )
        return frame

    def make_decoder(self) -> FrameDecoder:
        decoder: FrameDecoder = lz4.frame.LZ4FrameDecompressor()
        return decoder
