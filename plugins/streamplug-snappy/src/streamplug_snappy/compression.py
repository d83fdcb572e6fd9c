"""Snappy compression in the raw block format of `snappy.compress` of python-snappy."""

from __future__ import annotations

from typing import ClassVar

from cramjam import DecompressionError, snappy

from streamplug.interfaces import Compression
from streamplug.plugin_kit import damaged_error, too_large_error
from streamplug.types import Buffer


class Snappy(Compression):
    """Snappy blocks (``snappy``, no levels)."""

    suffix: ClassVar[str] = "snappy"

    def compress(self, data: Buffer) -> bytes:
        return bytes(snappy.compress_raw(data))

    def decompress(self, data: Buffer, *, max_size: int) -> bytes:
        # A block starts with its content size, which limits the output.
        try:
            if snappy.decompress_raw_len(data) > max_size:
                raise too_large_error(self.suffix, max_size)
            return bytes(snappy.decompress_raw(data))
        except DecompressionError as error:
            raise damaged_error(self.suffix, error) from error
