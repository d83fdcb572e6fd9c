"""Random crops of images, decoded no further than they need."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from streamplug.config import check_flags
from streamplug.errors import ConfigError
from streamplug.run import name_value
from streamplug_image.arrays import MAX_PIXELS
from streamplug_image.checks import (
    LAYOUTS,
    check_choice,
    check_count,
    check_normalization,
    check_resampler,
    check_size,
)
from streamplug_image.crop_box import draw_box
from streamplug_image.files import open_file
from streamplug_image.fit import Fit
from streamplug_image.pictures import CHANNELS
from streamplug_image.pixels import PixelDecoder

_UNLIMITED_BYTES = sys.maxsize
"""`max_pixels` is the only limit: a transform does not know `max_value_bytes` of the stream."""


@dataclass(frozen=True)
class RandomResizedCrop:
    """Decodes a random part of each image, resized and flipped at random; a `transform` of a loader.

    Called with a sample and its random generator, it returns the sample with an array in place of the image.
    Boxes are drawn as by torchvision's transform of this name, from the numbers of that generator; then a
    float decides on the flip. JPEG files are decoded at the scale that is needed, and no further than
    the box if there is a libturbojpeg of version 3: that of the distribution `turbojpeg`, or of the system.

    Attributes:
        size: Height and width of the arrays.
        column: Name of the column. Its values are image files as bytes, which `ImageFiles` reads, or Pillow
            images.
        scale: Least and largest share of an image's area.
        ratio: Least and largest width by height of a box.
        horizontal_flip: Probability of exchanging left and right.
        mode: As for `ImageArrays`.
        layout: As for `ImageArrays`.
        orient: As for `ImageArrays`.
        mean: As for `ImageArrays`.
        std: As for `ImageArrays`.
        resampler: ``"torch"`` or ``"pillow"``, as for `ImageArrays`.
        max_pixels: As for `ImageArrays`.

    Raises:
        ConfigError: If an argument is invalid.
    """

    size: tuple[int, int]
    column: str = "image"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    horizontal_flip: float = 0.5
    mode: str = "RGB"
    layout: str = "NHWC"
    orient: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resampler: str = "torch"
    max_pixels: int = MAX_PIXELS
    _decoder: PixelDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = partial(object.__setattr__, self)
        set_field("size", check_size(self.size))
        check_choice("mode", self.mode, CHANNELS)
        check_choice("layout", self.layout, LAYOUTS)
        check_count("max_pixels", self.max_pixels)
        check_flags(orient=self.orient)
        check_resampler(self.resampler)
        mean, std = check_normalization(self.mean, self.std, CHANNELS[self.mode])
        set_field("mean", mean)
        set_field("std", std)
        for name, most in (("scale", 1.0), ("ratio", float("inf"))):
            set_field(name, _check_range(name, getattr(self, name), most))
        _check_probability("horizontal_flip", self.horizontal_flip)
        options = self.mode, self.resampler, self.max_pixels, self.orient, mean, std
        set_field("_decoder", PixelDecoder(*options, max_value_bytes=_UNLIMITED_BYTES))

    def __call__(self, sample: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the sample with an array of a random part of its image.

        Args:
            sample: Has the image, by the name of its column.
            rng: Of which the numbers are drawn, such as `streamplug.sample_rng` returns.

        Raises:
            ConfigError: If the sample has no such column, or that is of no images.
            DecodeError: If the image is damaged, too large, or has values of more than 16 bits.
        """
        return {**sample, self.column: self.decode(self._image(sample), rng)}

    def decode(
        self, image: bytes | memoryview | Image.Image, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Return an array of a random part of an image, a file or one that Pillow opened."""
        data, opened = _file_of(image)

        def place(size: tuple[int, int]) -> Fit:
            return Fit(draw_box(size, rng, self.scale, self.ratio), (0, 0, *self.size), self.size)

        with name_value(image, self.column, rng):
            pixels = self._decoder.decode(
                data, opened, place, flip=lambda: rng.random() < self.horizontal_flip
            )
        return pixels if self.layout == "NHWC" else np.moveaxis(pixels, -1, 0)

    def _image(self, sample: Mapping[str, Any]) -> Any:
        if self.column not in sample:
            raise ConfigError(
                f"RandomResizedCrop(column={self.column!r}): the sample has {sorted(sample)}"
            )
        return sample[self.column]


def _file_of(image: Any) -> tuple[memoryview, Any]:
    """Return the file of an image, and what opens it; that of a Pillow image in memory is empty."""
    if isinstance(image, (bytes, bytearray, memoryview)):
        return memoryview(image), partial(open_file, max_value_bytes=_UNLIMITED_BYTES)
    if not isinstance(image, Image.Image):
        raise ConfigError(
            f"RandomResizedCrop takes image files as bytes, or Pillow images, not {type(image).__name__}; "
            "read the column by decoders={…: ImageFiles()}"
        )
    stream = getattr(image, "fp", None)
    is_file = isinstance(image, JpegImageFile) and image.tile and not image.tell()
    if is_file and isinstance(stream, BytesIO):
        return stream.getbuffer(), lambda _: image  # its pixels are not loaded yet
    return memoryview(b""), lambda _: image


def _check_range(name: str, value: Any, most: float) -> tuple[float, float]:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        low = high = 0.0
    if not 0 < low <= high <= most or not isfinite(high):
        raise ConfigError(f"{name}={value!r:.60}: expected two numbers above 0 in ascending order")
    return low, high


def _check_probability(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ConfigError(f"{name}={value!r:.60}: expected a probability from 0 to 1")
