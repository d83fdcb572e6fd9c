"""xz, from the standard library."""

from __future__ import annotations

import lzma
from typing import ClassVar

from streamplug.plugin_kit import FrameDecoder, StreamingCompression
from streamplug.types import Buffer

_MEMORY = 128 << 20
"""Memory limit: level 9 needs 65 MiB to decompress; a header can claim up to 4 GiB."""


class Xz(StreamingCompression):
    """xz (``xz``, levels 0 to 9)."""

    suffix: ClassVar[str] = "xz"
    levels: ClassVar[range] = range(10)
    default_level: ClassVar[int] = 6
    errors: ClassVar[tuple[type[Exception], ...]] = (lzma.LZMAError,)
    level: int

    def compress(self, data: Buffer) -> bytes:
        return lzma.compress(data, preset=self.level)

    def make_decoder(self) -> FrameDecoder:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
