"""bzip2, from the standard library."""

from __future__ import annotations

import bz2
from typing import ClassVar

from streamplug.plugin_kit import FrameDecoder, StreamingCompression
from streamplug.types import Buffer


class Bzip2(StreamingCompression):
    """bzip2 (``bz2``, levels 1 to 9)."""

    suffix: ClassVar[str] = "bz2"
    levels: ClassVar[range] = range(1, 10)
    default_level: ClassVar[int] = 9
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    level: int

    def compress(self, data: Buffer) -> bytes:
        return bz2.compress(data, self.level)

    def make_decoder(self) -> FrameDecoder:
        return bz2.BZ2Decompressor()
