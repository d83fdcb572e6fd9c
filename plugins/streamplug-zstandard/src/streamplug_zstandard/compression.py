"""Zstandard, through the standard library's module or its backport."""

from __future__ import annotations

import sys
from typing import ClassVar

from streamplug.interfaces.incremental import Decoder, IncrementalCompression
from streamplug.types import Buffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_WINDOW_LOG = 27
"""The largest window of any level, 128 MiB; the format allows claims of up to 3.75 TiB."""


class Zstandard(IncrementalCompression):
    """Zstandard (``zstd``, levels 1 to 22), with a checksum."""

    suffix: ClassVar[str] = "zstd"
    levels: ClassVar[range] = range(1, 23)
    default_level: ClassVar[int] = 3
    errors: ClassVar[tuple[type[Exception], ...]] = (zstd.ZstdError,)
    level: int

    def compress(self, data: Buffer) -> bytes:
        # Given all at once, the frame's header tells the size of the content.
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: self.level,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        return zstd.compress(data, options=options)

    def decoder(self) -> Decoder:
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        decoder: Decoder = zstd.ZstdDecompressor(options=options)
        return decoder
