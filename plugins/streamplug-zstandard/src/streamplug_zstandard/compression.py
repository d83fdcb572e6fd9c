"""Zstandard compression, through the zstandard package."""

from __future__ import annotations

import io
from typing import BinaryIO, ClassVar

import zstandard

from streamplug.interfaces import Compression
from streamplug.plugin_kit import damaged_error, too_large_error
from streamplug.types import Buffer
from streamplug_zstandard.frames import check_frames

_MAX_WINDOW = 1 << 27
"""The largest window of any level, 128 MiB; the format permits up to 3.75 TiB."""

_STEP = 1 << 20


class Zstandard(Compression):
    """Zstandard (``zstd``, levels 1 to 22), without frame checksums as the index has file hashes."""

    suffix: ClassVar[str] = "zstd"
    levels: ClassVar[range] = range(1, 23)
    default_level: ClassVar[int] = 3
    level: int

    def compress(self, data: Buffer) -> bytes:
        # One-shot compression stores the content size in the frame header.
        packed: bytes = zstandard.ZstdCompressor(level=self.level).compress(data)
        return packed

    def decompress(self, data: Buffer, *, max_size: int) -> bytes:
        target = io.BytesIO()
        self.decompress_stream(io.BytesIO(data), target, max_size=max_size)
        return target.getvalue()

    def decompress_stream(self, source: BinaryIO, target: BinaryIO, *, max_size: int) -> int:
        check_frames(source)
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        size = 0
        reader = unpacker.stream_reader(source, read_across_frames=True, closefd=False)
        try:
            # Read one byte beyond the limit to detect data that exceeds it.
            while chunk := reader.read(min(max_size - size + 1, _STEP)):
                size += len(chunk)
                if size > max_size:
                    raise too_large_error(self.suffix, max_size)
                target.write(chunk)
        except zstandard.ZstdError as error:
            raise damaged_error(self.suffix, error) from error
        return size
