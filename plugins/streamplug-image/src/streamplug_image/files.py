"""Images as the files that they come in."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces.encoding import Encoding, wrong_type_error

_READABLE = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""What a column may hold: other writers store any bytes that they are given, whatever its name."""


class File(Encoding):
    """An image file; it decodes to an image whose pixels are read when they are first used."""

    _format: ClassVar[str]
    _magic: ClassVar[bytes]

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._verified(bytes(value))
        if not isinstance(value, Image.Image):
            kind = self._format
            raise wrong_type_error(
                kind.lower(), f"a PIL image or the bytes of a {kind} file", value
            )
        out = BytesIO()
        try:
            value.save(out, self._format)
        except (OSError, ValueError) as error:
            raise EncodeError(
                f"an image of mode {value.mode} and size {value.size} cannot be {self._format}: "
                f"{error}; convert it first, for instance with image.convert('RGB')"
            ) from error
        return out.getvalue()

    def _verified(self, data: bytes) -> bytes:
        if not data.startswith(self._magic):
            raise EncodeError(f"not a {self._format} file: it begins with {data[:8]!r}")
        return data

    def decode(self, data: memoryview) -> Image.Image:
        return open_file(data)


def open_file(data: memoryview) -> Image.Image:
    """Open an image file; its pixels are read when they are first used.

    Raises:
        DecodeError: If it is none, or too large for Pillow.
    """
    try:
        return Image.open(BytesIO(data), formats=_READABLE)
    except UnidentifiedImageError:
        kinds = ", ".join(_READABLE)
        raise DecodeError(f"not an image ({kinds}): it begins with {bytes(data[:8])!r}") from None
    except Exception as error:  # the parsers of a damaged file raise what they run into
        raise DecodeError(f"cannot open the image: {type(error).__name__}: {error}") from error


class PNG(File):
    """``png``: a PNG file, made by Pillow with its defaults unless given as bytes."""

    _format = "PNG"
    _magic = b"\x89PNG\r\n\x1a\n"


class JPEG(File):
    """``jpeg``: a JPEG file.

    Bytes are stored as they are, and so is the file that an image was opened from. An image made
    or changed in memory is compressed by Pillow with its defaults.
    """

    _format = "JPEG"
    _magic = b"\xff\xd8\xff"

    def encode(self, value: Any) -> bytes:
        return _file_behind(value) or super().encode(value)


def _file_behind(value: object) -> bytes | None:
    """Return the file that an image was opened from, if it still shows what the image shows."""
    if not isinstance(value, JpegImageFile) or not value.filename:
        return None
    try:
        data = Path(os.fsdecode(value.filename)).read_bytes()
        # Once its pixels are read, an image can be drawn on and keeps its class and file name.
        if not value.tile:
            with Image.open(BytesIO(data)) as original:
                if (original.size, original.tobytes()) != (value.size, value.tobytes()):
                    return None
    except (OSError, ValueError):
        return None
    return data
