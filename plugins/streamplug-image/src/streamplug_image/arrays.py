"""Decoding of image columns to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np
from PIL import Image

from streamplug.errors import ConfigError
from streamplug.interfaces.encoding import Encoding, GatherBuffer
from streamplug.plugin import resolve
from streamplug.types import ColumnValues, Int64
from streamplug_image.files import ImageFile, open_file
from streamplug_image.fit import FITS
from streamplug_image.image_lists import Images
from streamplug_image.pil import PIL
from streamplug_image.pixels import CHANNELS, PixelDecoder, Pixels
from streamplug_image.threads import run_numbered

_MAX_PIXELS = 178_956_970
"""Pixels above which Pillow raises its decompression bomb error; it warns at half of that."""

Opener = Callable[[memoryview], Image.Image]


@dataclass(frozen=True)
class ImageArrays:
    """Reads a column of images as arrays; see `decoders` of `streamplug.StreamingDataset`.

    For columns of `jpeg`, `png` and `pil`, lists of them, and `bytes` that are image files. Images are
    uint8 arrays of shape ``[height, width, channels]``. With a `size`, a batch is one array of shape
    ``[n, height, width, channels]``, and so is a list of images; without, it is a list.

    JPEG files are decoded by libjpeg-turbo, to the same pixels as by Pillow. With a `size`, they are
    downscaled by eighths during decoding and then resized. Pillow decodes other files, and JPEG files that
    are CMYK or malformed. The EXIF orientation is not applied. Alpha is dropped if `mode` has none.

    Attributes:
        size: Height and width of the arrays; None keeps those of each image.
        mode: ``"RGB"``, ``"RGBA"``, or ``"L"`` for grayscale.
        fit: How an image of another aspect ratio is resized: ``"stretch"``; ``"crop"`` to its center;
            ``"pad"`` with zeros.
        layout: ``"NHWC"``, or ``"NCHW"`` for channels first: the same memory with other strides, as
            torch's memory format `channels_last`.
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
    num_threads: int = 1
    max_pixels: int = _MAX_PIXELS

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", _checked_size(self.size))
        for name, known in (("mode", CHANNELS), ("fit", FITS), ("layout", ("NHWC", "NCHW"))):
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"{name}={value!r}: expected one of {', '.join(known)}")
        for name in ("num_threads", "max_pixels"):
            if not _is_number(value := getattr(self, name)):
                raise ConfigError(f"{name}={value!r}: must be a whole number of 1 or more")
        if self.fit != "stretch" and self.size is None:
            raise ConfigError(f"fit={self.fit!r} needs a size=, such as (224, 224)")

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that decodes the images of `encoding` to arrays.

        Raises:
            ConfigError: If `encoding` does not store images.
        """
        if isinstance(encoding, Images):
            return _ListsOfArrays(encoding, _opener(encoding.image), self)
        return _Arrays(encoding, _opener(encoding), self)


class _Arrays(Encoding):
    """Images as arrays, stored by another encoding."""

    def __init__(self, stored: Encoding, open_image: Opener, options: ImageArrays) -> None:
        self._stored = stored
        self._open_image = open_image
        self._num_threads = options.num_threads
        self._channels_first = options.layout == "NCHW"
        self._decoder = PixelDecoder(options.mode, options.size, options.fit, options.max_pixels)
        if options.size is not None:
            self.decoded_bytes = prod(self._decoder.shape(options.size))

    def encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def decode(self, data: memoryview) -> Any:
        return self._with_layout(self._decoder.decode(data, self._open_image, None))

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        return self._decoded(buffer.slices(starts, sizes))

    def _decoded(self, values: Sequence[memoryview]) -> ColumnValues:
        """Decode images to one array if `size` is fixed, else to a list of arrays."""
        decode, open_image, size = self._decoder.decode, self._open_image, self._decoder.size
        if size is not None:
            batch = np.empty((len(values), *self._decoder.shape(size)), np.uint8)
            run_numbered(
                len(values), lambda i: decode(values[i], open_image, batch[i]), self._num_threads
            )
            return self._with_layout(batch)
        arrays: dict[int, Pixels] = {}

        def work(i: int) -> None:
            arrays[i] = self._with_layout(decode(values[i], open_image, None))

        run_numbered(len(values), work, self._num_threads)
        return [arrays[i] for i in range(len(values))]

    def _with_layout(self, pixels: Pixels) -> Pixels:
        return np.moveaxis(pixels, -1, -3) if self._channels_first else pixels


class _ListsOfArrays(_Arrays):
    """Lists of images as arrays."""

    _stored: Images

    def decode(self, data: memoryview) -> Any:
        return self._decoded(self._stored.parts(data))

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        lists = [self._stored.parts(data) for data in buffer.slices(starts, sizes)]
        images = self._decoded([image for images in lists for image in images])
        ends = accumulate(map(len, lists), initial=0)
        return [images[start:end] for start, end in pairwise(ends)]


def _opener(encoding: Encoding) -> Opener:
    if isinstance(encoding, PIL):
        return encoding.decode
    if isinstance(encoding, (ImageFile, resolve("encoding", "bytes"))):
        return open_file
    raise ConfigError(
        f"ImageArrays reads columns of images (jpeg, png, pil, lists of them) or bytes, "
        f"not {type(encoding).__name__}"
    )


def _checked_size(size: Any) -> tuple[int, int]:
    if not isinstance(size, (tuple, list)) or len(size) != 2 or not all(map(_is_number, size)):
        raise ConfigError(f"size={size!r}: expected a height and a width, such as (224, 224)")
    return int(size[0]), int(size[1])


def _is_number(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and int(value) >= 1
