"""Decoding of images to pixel arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from streamplug.errors import DecodeError
from streamplug_image.fit import Fit, fit

Pixels = NDArray[np.uint8]
"""The pixels of an image: uint8, shape ``[height, width, channels]``."""

CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
"""Channels by mode of the arrays."""

_SPACES = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGBA"}
_ORDINARY = ("YCbCr", "RGB", "Gray")
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class PixelDecoder:
    """Decodes images to arrays of one mode and an optional fixed size.

    Attributes:
        mode: One of `CHANNELS`.
        size: Height and width, or None for those of each image.
        fit: See `streamplug_image.fit.fit`.
        max_pixels: Maximum pixels of an image, checked before decoding.
    """

    mode: str
    size: tuple[int, int] | None
    fit: str
    max_pixels: int

    def shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Return the shape of an array with this height and width."""
        return (*size, CHANNELS[self.mode])

    def decode(
        self, data: memoryview, opened: Callable[[memoryview], Image.Image], out: Pixels | None
    ) -> Pixels:
        """Decode one image.

        Args:
            data: The encoded image.
            opened: Opens images that libjpeg-turbo does not decode.
            out: Array to write to, of shape ``[*size, channels]``; None allocates one.

        Raises:
            DecodeError: If the image is damaged, too large, or has more than 8 bits per channel.
        """
        try:
            pixels = self._jpeg(data, out) if bytes(data[:3]) == b"\xff\xd8\xff" else None
            return self._image(opened(data), out) if pixels is None else pixels
        except DecodeError:
            raise
        except Exception as error:  # decoders of damaged files raise arbitrary errors
            raise DecodeError(
                f"cannot decode the image: {type(error).__name__}: {error}"
            ) from error

    # -- JPEG files -------------------------------------------------------------------

    def _jpeg(self, data: memoryview, out: Pixels | None) -> Pixels | None:
        """Decode a JPEG file with libjpeg-turbo, or return None if Pillow must decode it."""
        try:
            high, wide, space, _ = simplejpeg.decode_jpeg_header(data)
        except ValueError:
            return None
        size = (high, wide)
        self._check(size)
        if space not in _ORDINARY:
            return None
        if self.size is None or size == self.size:
            return self._decompressed(data, (0, 0), out)
        placed = fit(size, self.size, self.fit)
        to = placed.needed(size)
        if to != size:
            high, wide, _, _ = simplejpeg.decode_jpeg_header(data, *to)
        if (high, wide) == self.size and placed.whole(size):
            return self._decompressed(data, to, out)
        pixels = self._decompressed(data, to if to != size else (0, 0), None)
        if pixels is None:
            return None
        picture = Image.fromarray(pixels if pixels.shape[2] > 1 else pixels[..., 0])
        return self._placed(picture, placed.scaled(size, (high, wide)), out)

    def _decompressed(
        self, data: memoryview, least: tuple[int, int], out: Pixels | None
    ) -> Pixels | None:
        """Decode a JPEG file, downscaled to at least a height and width; (0, 0) is unscaled."""
        try:
            pixels: Pixels = simplejpeg.decode_jpeg(
                data, _SPACES[self.mode], min_height=least[0], min_width=least[1], buffer=out
            )
        except ValueError:  # simplejpeg raises on warnings of libjpeg-turbo
            return None
        return pixels

    # -- other images -----------------------------------------------------------------

    def _image(self, picture: Image.Image, out: Pixels | None) -> Pixels:
        size = picture.height, picture.width
        self._check(size)
        if picture.mode in _DEEP:
            raise DecodeError(
                f"an image of mode {picture.mode} has values of more than 8 bits; "
                "read the column without a decoder"
            )
        picture = _converted(picture, self.mode)
        if self.size is None:
            return np.array(picture).reshape(self.shape(size))
        return self._placed(picture, fit(size, self.size, self.fit), out)

    def _placed(self, picture: Image.Image, placed: Fit, out: Pixels | None) -> Pixels:
        """Resize a picture and copy it to its place in the result."""
        if out is None:
            out = np.empty(self.shape(self.size or (0, 0)), np.uint8)
        top, left, height, width = placed.shown
        if (height, width) != out.shape[:2]:
            out[...] = 0
        # The filter width scales with the reduction, so that no pixels are skipped.
        picture = picture.resize((width, height), Image.Resampling.BILINEAR, placed.box)
        pixels = np.asarray(picture).reshape(self.shape((height, width)))
        out[top : top + height, left : left + width] = pixels
        return out

    def _check(self, size: tuple[int, int]) -> None:
        if size[0] * size[1] > self.max_pixels:
            raise DecodeError(
                f"an image of {size[1]} x {size[0]} pixels: more than max_pixels={self.max_pixels}"
            )
        if not size[0] * size[1]:
            raise DecodeError(f"an image of {size[1]} x {size[0]} pixels has nothing to decode")


def _converted(picture: Image.Image, mode: str) -> Image.Image:
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # Pillow warns if it converts directly to another mode
    return picture if picture.mode == mode else picture.convert(mode)
