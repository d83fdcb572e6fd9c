"""Decoding of single images to arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from streamplug.errors import DecodeError
from streamplug.interfaces import MAX_VALUE_BYTES
from streamplug.plugin_kit import large_value_error
from streamplug_image.fit import Fit
from streamplug_image.jpeg import SPACES, decode_jpeg, read_header
from streamplug_image.normalization import Normalization
from streamplug_image.orientation import (
    find_orientation,
    orient,
    oriented_size,
    stored_box,
    turn_back,
)
from streamplug_image.pictures import CHANNELS, picture_array
from streamplug_image.resampler import resize_pixels

Pixels: TypeAlias = NDArray[Any]
"""Pixels of an image: uint8, uint16 or float32, shape ``[height, width, channels]``."""

Opener: TypeAlias = Callable[[memoryview], Image.Image]
"""Opens images that libjpeg-turbo does not decode."""

Place: TypeAlias = Callable[[tuple[int, int]], Fit]
"""Returns which part of an image of a height and width is shown, and where."""


@dataclass(frozen=True)
class PixelDecoder:
    """Decodes images to arrays of one mode.

    Attributes:
        mode: One of `CHANNELS`.
        resampler: See `streamplug_image.resampler.RESAMPLERS`.
        max_pixels: Maximum pixels of an image, checked before decoding.
        orient: Whether to turn images as their EXIF data states.
        mean: Mean of each channel, as a share of the largest value; None for integers.
        std: Deviation of each channel, likewise.
        max_value_bytes: Maximum bytes of the pixels of an image, as integers.
    """

    mode: str
    resampler: str
    max_pixels: int
    orient: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    max_value_bytes: int = MAX_VALUE_BYTES
    _normalization: Normalization | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        normalization = None
        if self.mean is not None and self.std is not None:
            largest = 65535 if self.mode == "I;16" else 255
            normalization = Normalization(self.mean, self.std, largest)
        object.__setattr__(self, "_normalization", normalization)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the arrays."""
        if self._normalization is not None:
            return np.dtype(np.float32)
        return np.dtype(np.uint16 if self.mode == "I;16" else np.uint8)

    def shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Return the shape of an array with this height and width."""
        return (*size, CHANNELS[self.mode])

    def decode(
        self,
        data: memoryview,
        opened: Opener,
        place: Place,
        out: Pixels | None = None,
        *,
        flip: Callable[[], bool] | None = None,
    ) -> Pixels:
        """Decode one image.

        Args:
            data: The encoded image.
            opened: Opens images that libjpeg-turbo does not decode.
            place: Returns the part to show of an image, whose height and width it gets.
            out: Contiguous array to write to, of the shape and dtype of the result; None allocates one.
            flip: Called after `place`; returns whether to exchange left and right. None for never.

        Raises:
            DecodeError: If the image is damaged, too large, or has more bits than `mode`.
            MemoryError: If there is no memory for it, which is no damage.
        """
        try:
            return self._decode(data, opened, place, out, flip)
        except (DecodeError, MemoryError):
            raise
        except Exception as error:  # decoders of damaged files raise arbitrary errors
            raise DecodeError(
                f"cannot decode the image: {type(error).__name__}: {error}"
            ) from error

    def _decode(
        self,
        data: memoryview,
        opened: Opener,
        place: Place,
        out: Pixels | None,
        flip: Callable[[], bool] | None,
    ) -> Pixels:
        is_jpeg = self.mode in SPACES and bytes(data[:3]) == b"\xff\xd8\xff"
        header, picture = read_header(data) if is_jpeg else None, None
        if header is None:
            picture = opened(data)
            size = picture.height, picture.width
        else:
            size = header.size
        self._check(size)
        is_tiff = picture is not None and picture.format == "TIFF"
        orientation = find_orientation(data, opened) if self.orient or is_tiff else 1
        loaded_as = 1
        if picture is not None and is_tiff:
            picture.load()  # Pillow turns these itself
            loaded_as, orientation = (1 if self.orient else orientation), 1
            size = oriented_size((picture.height, picture.width), loaded_as)
        placed = place(oriented_size(size, orientation))
        flipped = flip is not None and flip()
        box = stored_box(placed.box, size, orientation)
        to = oriented_size(placed.shown[2:], orientation)
        as_stored = orientation == 1 and not flipped and self._normalization is None
        direct = out if as_stored and out is not None and out.shape[:2] == to else None
        pixels = None
        if header is not None:
            halves = self.resampler == "torch"
            part = decode_jpeg(data, header, self.mode, box, to, halves=halves, out=direct)
            if part is not None:
                pixels = resize_pixels(*part, to, self.resampler)
        if pixels is None:
            array = picture_array(picture or opened(data), self.mode)
            array = turn_back(array, loaded_as)
            pixels = resize_pixels(array, box, to, self.resampler)
        pixels = orient(pixels, orientation)
        return self._write(pixels[:, ::-1] if flipped else pixels, placed, out)

    def _write(self, pixels: Pixels, placed: Fit, out: Pixels | None) -> Pixels:
        """Copy pixels to their place in the result, as floats if so asked."""
        top, left, height, width = placed.shown
        is_whole = placed.size == (height, width)
        if self._normalization is not None:
            pixels = _contiguous(pixels)
            floats = np.empty(pixels.shape, np.float32) if out is None or not is_whole else out
            self._normalization.write(pixels, floats)
            pixels = floats
        if out is None:
            if is_whole:
                return _contiguous(pixels)
            out = np.empty(self.shape(placed.size), self.dtype)
        if not np.may_share_memory(pixels, out):  # it was not decoded in place
            if not is_whole:
                out[...] = 0
            _copy(pixels, out[top : top + height, left : left + width])
        return out

    def _check(self, size: tuple[int, int]) -> None:
        if size[0] * size[1] > self.max_pixels:
            raise DecodeError(
                f"an image of {size[1]} x {size[0]} pixels: more than max_pixels={self.max_pixels}"
            )
        if prod(self.shape(size)) * (2 if self.mode == "I;16" else 1) > self.max_value_bytes:
            raise large_value_error(
                f"an image of {size[1]} x {size[0]} pixels", self.max_value_bytes
            )
        if not size[0] * size[1]:
            raise DecodeError(f"an image of {size[1]} x {size[0]} pixels has nothing to decode")


def _contiguous(pixels: Pixels) -> Pixels:
    if pixels.flags.c_contiguous:
        return pixels
    copy = np.empty(pixels.shape, pixels.dtype)
    _copy(pixels, copy)
    return copy


def _copy(pixels: Pixels, out: Pixels) -> None:
    if pixels.flags.c_contiguous:
        out[...] = pixels
        return
    # NumPy is slow where the last axis is short.
    for channel in range(pixels.shape[2]):
        out[..., channel] = pixels[..., channel]
