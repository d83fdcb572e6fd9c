"""LZ4, in its frame format."""

from __future__ import annotations

from typing import ClassVar

import lz4.frame

from streamplug.plugin_kit.streaming_codec import Decoder, IncrementalCompression
from streamplug.types import Buffer


class LZ4(IncrementalCompression):
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

    def decoder(self) -> Decoder:
        decoder: Decoder = lz4.frame.LZ4FrameDecompressor()
        return decoder
