"""Decoding of image columns to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from streamplug.config import check_flags
from streamplug.errors import ConfigError
from streamplug.interfaces import MAX_VALUE_BYTES, Encoding, GatherBuffer
from streamplug.plugin import resolve
from streamplug.plugin_kit import large_value_error
from streamplug.types import ColumnValues, Int64
from streamplug_image.checks import (
    LAYOUTS,
    check_choice,
    check_count,
    check_normalization,
    check_resampler,
    check_size,
    is_count,
)
from streamplug_image.files import ImageFile, open_file
from streamplug_image.fit import FITS, Fit, fit
from streamplug_image.image_lists import Images
from streamplug_image.pictures import CHANNELS
from streamplug_image.pil import PIL
from streamplug_image.pixels import Opener, PixelDecoder, Pixels
from streamplug_image.threads import run_numbered

MAX_PIXELS = 178_956_970
"""Pixels above which Pillow raises its decompression bomb error; it warns at half of that."""


@dataclass(frozen=True)
class ImageArrays:
    """Reads a column of images as arrays; see `decoders` of `streamplug.StreamingDataset`.

    For columns of `jpeg`, `png` and `pil`, lists of them, and `bytes` that are image files. Images are
    arrays of uint8, if nothing else is asked for, and of shape ``[height, width, channels]``. With a `size`,
    a batch is one array of shape ``[n, height, width, channels]``, and so is a list of images; without, it
    is a list.

    JPEG files are decoded by libjpeg-turbo, to the same pixels as by Pillow. With a `size`, they are
    downscaled by eighths during decoding and then resized. Pillow decodes other files, and JPEG files that
    are CMYK or malformed. Alpha is dropped if `mode` has none.

    Attributes:
        size: Height and width of the arrays; None keeps those of each image.
        mode: ``"RGB"``, ``"RGBA"``, ``"L"`` for grayscale, or ``"I;16"`` for grayscale of 16 bits, as uint16.
        fit: How an image of another aspect ratio is resized: ``"stretch"``; ``"crop"`` to its center;
            ``"pad"`` with zeros.
        layout: ``"NHWC"``, or ``"NCHW"`` for channels first: the same memory with other strides, as
            torch's memory format `channels_last`.
        shorter_side: With ``fit="crop"``, length to which the shorter side is resized before `size` is cut
            from the center, such as 256; None for the least length.
        orient: Whether images are turned as their EXIF data states.
        mean: Mean of each channel, as a share of the largest value, such as ``(0.485, 0.456, 0.406)``.
            With `mean` and `std`, arrays are float32 and normalised; padding is 0.
        std: Standard deviation of each channel, likewise.
        resampler: Library that resizes: ``"pillow"``, or ``"torch"``, which is faster and rounds some
            values to the next number.
        num_threads: Maximum threads that decode a batch. The process has one pool with a thread per core,
            shared by all columns and data sets.
        max_pixels: Maximum pixels of an image, checked before decoding. Images that Pillow opens are
            also subject to its own limit.

    Raises:
        ConfigError: If an argument is invalid.
    """

    size: tuple[int, int] | None = None
    mode: str = "RGB"
    fit: str = "stretch"
    layout: str = "NHWC"
    shorter_side: int | None = None
    orient: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resampler: str = "pillow"
    num_threads: int = 1
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", check_size(self.size))
        for name, known in (("mode", CHANNELS), ("fit", FITS), ("layout", LAYOUTS)):
            check_choice(name, getattr(self, name), known)
        for name in ("num_threads", "max_pixels"):
            check_count(name, getattr(self, name))
        if self.fit != "stretch" and self.size is None:
            raise ConfigError(f"fit={self.fit!r} needs a size=, such as (224, 224)")
        if self.shorter_side is not None:
            self._check_shorter_side(self.shorter_side)
        check_flags(orient=self.orient)
        check_resampler(self.resampler)
        normalization = check_normalization(self.mean, self.std, CHANNELS[self.mode])
        for name, value in zip(("mean", "std"), normalization):
            object.__setattr__(self, name, value)

    def _check_shorter_side(self, value: Any) -> None:
        if self.fit != "crop" or self.size is None:
            raise ConfigError(f"shorter_side={value!r} needs fit='crop' and a size=")
        if not is_count(value) or value < max(self.size):
            raise ConfigError(
                f"shorter_side={value!r}: must be a whole number of at least {max(self.size)}, the longer "
                f"side of size={self.size}"
            )

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that decodes the images of `encoding` to arrays.

        Raises:
            ConfigError: If `encoding` does not store images.
        """
        if isinstance(encoding, Images):
            return _ListsOfArrays(encoding, self)
        return _Arrays(encoding, self)


class _Arrays(Encoding):
    """Images as arrays, stored by another encoding."""

    releases_gil = True

    def __init__(
        self, stored: Encoding, options: ImageArrays, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        self._stored, self._options, self.max_value_bytes = stored, options, max_value_bytes
        self._open_image = _opener(stored, max_value_bytes)
        self._num_threads = options.num_threads
        self._channels_first = options.layout == "NCHW"
        self._size = options.size
        self._place = partial(_place, options=options)
        self._decoder = PixelDecoder(
            options.mode,
            options.resampler,
            options.max_pixels,
            options.orient,
            options.mean,
            options.std,
            max_value_bytes // (4 if options.std is not None and options.size is None else 1),
        )
        if options.size is not None:
            self.decoded_bytes = (
                prod(self._decoder.shape(options.size)) * self._decoder.dtype.itemsize
            )

    def with_max_value_bytes(self, size: int) -> Encoding:
        return type(self)(self._stored.with_max_value_bytes(size), self._options, size)

    def encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def decode(self, data: memoryview) -> Any:
        return self._with_layout(self._decoder.decode(data, self._open_image, self._place))

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        return self._decoded(buffer.slices(starts, sizes))

    def _decoded(self, values: Sequence[memoryview]) -> ColumnValues:
        """Decode images to one array if `size` is fixed, else to a list of arrays."""
        decode, open_image, place = self._decoder.decode, self._open_image, self._place
        if self._size is not None:
            batch = np.empty((len(values), *self._decoder.shape(self._size)), self._decoder.dtype)
            run_numbered(
                len(values),
                lambda i: decode(values[i], open_image, place, batch[i]),
                self._num_threads,
            )
            return self._with_layout(batch)
        arrays: dict[int, Pixels] = {}

        def work(i: int) -> None:
            arrays[i] = self._with_layout(decode(values[i], open_image, place))

        run_numbered(len(values), work, self._num_threads)
        return [arrays[i] for i in range(len(values))]

    def _with_layout(self, pixels: Pixels) -> Pixels:
        return np.moveaxis(pixels, -1, -3) if self._channels_first else pixels


class _ListsOfArrays(_Arrays):
    """Lists of images as arrays."""

    _stored: Images

    def decode(self, data: memoryview) -> Any:
        images = self._stored.parts(data)
        if self._size is not None:
            self._check_size(len(images), len(images) * (self.decoded_bytes or 0))
            return self._decoded(images)
        arrays: list[Pixels] = []
        num_bytes = 0
        # A few at a time: what they take is known only when they are decoded.
        for first in range(0, len(images), self._num_threads):
            arrays += self._decoded(images[first : first + self._num_threads])
            num_bytes += sum(array.nbytes for array in arrays[first:])
            self._check_size(len(images), num_bytes)
        return arrays

    def _check_size(self, count: int, num_bytes: int) -> None:
        """Raise `DecodeError` if the arrays of a list of images take too much memory."""
        if num_bytes > self.max_value_bytes:
            raise large_value_error(f"a list of {count} images", self.max_value_bytes)

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        values = buffer.slices(starts, sizes)
        if self._size is None:
            return [self.decode(data) for data in values]
        lists = [self._stored.parts(data) for data in values]
        for images in lists:
            self._check_size(len(images), len(images) * (self.decoded_bytes or 0))
        arrays = self._decoded([image for images in lists for image in images])
        ends = accumulate(map(len, lists), initial=0)
        return [arrays[start:end] for start, end in pairwise(ends)]


def _place(size: tuple[int, int], *, options: ImageArrays) -> Fit:
    """Return which part of an image of a height and width is shown, and where."""
    return fit(size, options.size or size, options.fit, options.shorter_side)


def _opener(encoding: Encoding, max_value_bytes: int) -> Opener:
    if isinstance(encoding, Images):
        encoding = encoding.image
    if isinstance(encoding, PIL):
        return encoding.decode
    if isinstance(encoding, (ImageFile, resolve("encoding", "bytes"))):
        return partial(open_file, max_value_bytes=max_value_bytes)
    raise ConfigError(
        f"ImageArrays reads columns of images (jpeg, png, pil, lists of them) or bytes, "
        f"not {type(encoding).__name__}"
    )
