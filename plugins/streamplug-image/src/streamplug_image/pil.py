"""Encoding of images as raw pixels."""

from __future__ import annotations

import struct
from typing import Any

from PIL import Image, ImageMode

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import wrong_type_error
from streamplug_image.files import loaded

_HEAD = struct.Struct("<III")
_MAX_EMPTY = 1 << 16
"""Maximum side of an image without pixels: Pillow allocates a pointer per line even then."""


class PIL(Encoding):
    """``pil``: width, height and length of the mode as uint32; the mode; the pixels."""

    releases_gil = True

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, Image.Image):
            raise wrong_type_error("pil", "a PIL image", value)
        loaded(value)
        mode = value.mode.encode()
        stored = _HEAD.pack(*value.size, len(mode)) + mode + value.tobytes()
        has_more = "P" in value.mode or "transparency" in value.info
        if has_more and _colours(value) != _colours(self.decode(memoryview(stored))):
            raise EncodeError(
                f"an image of mode {value.mode} has a palette or a transparent colour, which pil does not "
                "store; convert its colours by image.convert('RGB') or ('RGBA'), keep the numbers of a mask "
                "by Image.fromarray(np.asarray(image)), or store it as png"
            )
        return stored

    def decode(self, data: memoryview) -> Image.Image:
        if len(data) < _HEAD.size:
            raise DecodeError(f"an image has a header of {_HEAD.size} bytes, got {len(data)}")
        width, height, length = _HEAD.unpack_from(data)
        mode = bytes(data[_HEAD.size : _HEAD.size + min(length, 16)]).decode("ascii", "replace")
        pixels = data[_HEAD.size + length :]
        size = _stored_size(mode, width, height)
        if size != len(pixels) or (size == 0 and max(width, height) > _MAX_EMPTY):
            raise DecodeError(
                f"an image of mode {mode} and {width} x {height} pixels has {size} bytes, "
                f"got {len(pixels)}"
            )
        if not size:  # older versions of Pillow cannot read empty images
            return Image.new(mode, (width, height))
        return Image.frombytes(mode, (width, height), bytes(pixels))


def _colours(image: Image.Image) -> bytes:
    return image.convert("RGBA").tobytes()


def _stored_size(mode: str, width: int, height: int) -> int:
    """Return the bytes of raw pixels, without allocating an image."""
    try:
        description = ImageMode.getmode(mode)
    except KeyError:
        raise DecodeError(f"no image has mode {mode!r}") from None
    if mode == "1":
        return (width + 7) // 8 * height
    return width * height * len(description.bands) * int(description.typestr[2:])
