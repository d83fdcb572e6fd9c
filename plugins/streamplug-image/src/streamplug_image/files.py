"""Encodings of images as image files."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import MAX_VALUE_BYTES, Encoding
from streamplug.plugin_kit import describe_start, large_value_error, wrong_type_error
from streamplug_image.lazy_images import READABLE, open_lazily


class ImageFile(Encoding):
    """An image file, decoded to an image that loads its pixels on first use."""

    releases_gil = True
    _format: ClassVar[str]
    _magic: ClassVar[bytes]
    lazy = True

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._verified(bytes(value))
        if not isinstance(value, Image.Image):
            kind = self._format
            raise wrong_type_error(
                kind.lower(), f"a PIL image or the bytes of a {kind} file", value
            )
        loaded(value)
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
            raise EncodeError(f"not a {self._format} file: {describe_start(data)}")
        return data

    def decode(self, data: memoryview) -> Image.Image:
        return open_file(data, self.max_value_bytes)


def loaded(image: Image.Image) -> Image.Image:
    """Return an image with its pixels.

    Raises:
        EncodeError: If the file from which it was opened is damaged, or is gone.
    """
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # parsers of damaged files raise arbitrary errors
        name = getattr(image, "filename", "")
        raise EncodeError(
            f"the pixels of the image {f'of {os.fsdecode(name)} ' if name else ''}cannot be read: "
            f"{type(error).__name__}: {error}; leave it out, or replace its file"
        ) from error
    return image


def open_file(data: memoryview, max_value_bytes: int = MAX_VALUE_BYTES) -> Image.Image:
    """Open an image file; its pixels are loaded on first use.

    Raises:
        DecodeError: If it is not an image, or its pixels take more than `max_value_bytes`.
    """
    try:
        image = open_lazily(data)
    except UnidentifiedImageError:
        kinds = ", ".join(READABLE)
        raise DecodeError(f"not an image ({kinds}): {describe_start(data)}") from None
    except Exception as error:  # parsers of damaged files raise arbitrary errors
        raise DecodeError(f"cannot open the image: {type(error).__name__}: {error}") from error
    width, height = image.size
    if width * height * len(image.getbands()) > max_value_bytes:
        raise large_value_error(f"an image of {width} x {height} pixels", max_value_bytes)
    return image


class PNG(ImageFile):
    """``png``: a PNG file; images are compressed by Pillow with its defaults."""

    _format = "PNG"
    _magic = b"\x89PNG\r\n\x1a\n"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, Image.Image) and value.mode == "I":
            low, high = value.getextrema()
            if not 0 <= low <= high <= 65535:  # type: ignore[operator]  # of one band; Pillow < 13 cuts them off
                raise EncodeError(
                    f"PNG takes numbers from 0 to 65535, this image has {low} to {high}; store it as pil"
                )
        return super().encode(value)


class JPEG(ImageFile):
    """``jpeg``: a JPEG file.

    Bytes are stored unchanged, as is the file from which an image was opened. Images created or changed in
    memory are compressed by Pillow with its defaults.
    """

    _format = "JPEG"
    _magic = b"\xff\xd8\xff"

    def encode(self, value: Any) -> bytes:
        return _file_behind(value) or super().encode(value)


def _file_behind(value: object) -> bytes | None:
    """Return the file from which an image was opened, or None if the image was changed since."""
    if not isinstance(value, JpegImageFile) or not value.filename:
        return None
    try:
        data = Path(os.fsdecode(value.filename)).read_bytes()
        with Image.open(BytesIO(data)) as original:
            # draft() and seek() change an image before its pixels are loaded.
            if value.tell() or (original.mode, original.size) != (value.mode, value.size):
                return None
            # An image with loaded pixels may have been modified; it keeps its class and file name.
            if not value.tile and original.tobytes() != value.tobytes():
                return None
    except (OSError, ValueError):
        return None
    return data
