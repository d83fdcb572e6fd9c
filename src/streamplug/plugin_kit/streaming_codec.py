"""Compressions with an incremental decompressor, such as those of bz2 and lzma."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import BinaryIO, ClassVar, Protocol

from streamplug.interfaces import Compression
from streamplug.plugin_kit.codec_errors import damaged_error, too_large_error
from streamplug.types import Buffer

READ_BYTES = 1 << 16
MAX_STEP_BYTES = 1 << 20


class FrameDecoder(Protocol):
    """A decompressor of one frame, with the interface of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool:
        """Whether the end of the frame was reached."""

    @property
    def needs_input(self) -> bool:
        """Whether more input is needed for more output."""

    @property
    def unused_data(self) -> bytes | None:
        """The input behind the end of the frame."""

    def decompress(self, data: bytes, /, max_length: int) -> bytes:
        """Consume input and return at most about `max_length` bytes of output."""


class StreamingCompression(Compression):
    """A compression that decompresses in chunks, so that output cannot exceed its limit.

    Attributes:
        errors: Exceptions of the decoder for damaged data.
        concatenated: Whether a file may consist of several frames.
    """

    errors: ClassVar[tuple[type[Exception], ...]]
    concatenated: ClassVar[bool] = True

    @abstractmethod
    def make_decoder(self) -> FrameDecoder:
        """Return a new decoder at the start of a frame."""

    def decompress(self, data: Buffer, *, max_size: int) -> bytes:
        """Return the decompressed data, stopping as soon as it exceeds `max_size`."""
        target = io.BytesIO()
        self.decompress_stream(io.BytesIO(data), target, max_size=max_size)
        return target.getvalue()

    def decompress_stream(self, source: BinaryIO, target: BinaryIO, *, max_size: int) -> int:
        """Decompress from one open file to another, and return the number of bytes written."""
        size = 0
        decoder, data = self.make_decoder(), source.read(READ_BYTES)
        while True:
            # One byte beyond the limit distinguishes data of exactly max_size from larger data.
            chunk = self._step(decoder, data, min(max_size - size + 1, MAX_STEP_BYTES))
            size += len(chunk)
            if size > max_size:
                raise too_large_error(self.suffix, max_size)
            target.write(chunk)
            if decoder.eof:
                data = decoder.unused_data or source.read(READ_BYTES)
                if not data:
                    return size
                if not self.concatenated:
                    raise damaged_error(self.suffix, "bytes follow its end")
                decoder = self.make_decoder()
            elif decoder.needs_input:
                data = source.read(READ_BYTES)
                if not data:
                    raise damaged_error(self.suffix, "it ends early")
            else:
                data = b""

    def _step(self, decoder: FrameDecoder, data: bytes, max_length: int) -> bytes:
        try:
            return decoder.decompress(data, max_length=max_length)
        except self.errors as error:
            raise damaged_error(self.suffix, error) from error
