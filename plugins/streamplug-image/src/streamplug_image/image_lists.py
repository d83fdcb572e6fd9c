"""Encodings of lists of images."""

from __future__ import annotations

import struct
from copy import copy
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from PIL import Image

from streamplug.errors import DecodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import wrong_type_error
from streamplug_image.files import JPEG, PNG
from streamplug_image.pil import PIL

_COUNT = struct.Struct("<I")


class Images(Encoding):
    """A header; the number of images and the size of each, as uint32; the images.

    Attributes:
        image: Encoding of each image.
    """

    releases_gil = True
    _name: ClassVar[str]
    _head: ClassVar[bytes] = bytes(4)  # reserved by the format
    image: Encoding

    @property
    def lazy(self) -> bool:  # type: ignore[override]  # as the images are
        return self.image.lazy

    def with_max_value_bytes(self, size: int) -> Images:
        bounded = copy(self)
        bounded.max_value_bytes, bounded.image = size, self.image.with_max_value_bytes(size)
        return bounded

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (list, tuple)):
            raise wrong_type_error(self._name, "a list of images", value)
        images = [self.image.encode(image) for image in value]
        counts = struct.pack(f"<{len(images) + 1}I", len(images), *map(len, images))
        return b"".join((self._head, counts, *images))

    def decode(self, data: memoryview) -> list[Image.Image]:
        return [self.image.decode(part) for part in self.parts(data)]

    def parts(self, data: memoryview) -> list[memoryview]:
        """Return the bytes of each image.

        Raises:
            DecodeError: If the value is not a list of images.
        """
        start = len(self._head) + _COUNT.size
        if len(data) < start:
            raise DecodeError(f"a list of images has at least {start} bytes, got {len(data)}")
        (count,) = _COUNT.unpack_from(data, len(self._head))
        images = start + _COUNT.size * count
        if images > len(data):
            raise DecodeError(f"{len(data)} bytes cannot hold {count} images")
        sizes = struct.unpack_from(f"<{count}I", data, start)
        ends = list(accumulate(sizes, initial=images))
        if ends[-1] != len(data):
            raise DecodeError(f"images of {sum(sizes)} bytes in a list of {len(data) - images}")
        return [data[begin:end] for begin, end in pairwise(ends)]


class JPEGArray(Images):
    """``jpeg_array``: a list of JPEG files, as bytes or as images."""

    _name = "jpeg_array"
    _head = b""
    image = JPEG()


class ListPIL(Images):
    """``list[pil]``: a list of images as raw pixels."""

    _name = "list[pil]"
    image = PIL()


class ListJPEG(Images):
    """``list[jpeg]``: a list of images as JPEG files."""

    _name = "list[jpeg]"
    image = JPEG()


class ListPNG(Images):
    """``list[png]``: a list of images as PNG files."""

    _name = "list[png]"
    image = PNG()
