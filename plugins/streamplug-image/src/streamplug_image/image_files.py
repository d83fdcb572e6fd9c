"""Reading of image columns as image files, which a transform decodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamplug.errors import ConfigError, DecodeError
from streamplug.interfaces import Encoding
from streamplug.plugin import resolve
from streamplug_image.files import ImageFile, open_file
from streamplug_image.jpeg import JPEG_END, read_header


@dataclass(frozen=True)
class ImageFiles:
    """Reads a column of images as the bytes of its files; see `decoders` of `streamplug.StreamingDataset`.

    For columns of `jpeg` and `png`, and `bytes` that are image files, with a transform that decodes them,
    such as `RandomResizedCrop`. Files are checked first, so that a damaged one is an error of the sample:
    JPEG files for their header and their end, PNG files by their checksums, others for their header.
    """

    def __call__(self, encoding: Encoding) -> Encoding:
        """Return an encoding that reads the values of `encoding` as bytes.

        Raises:
            ConfigError: If `encoding` does not store single image files.
        """
        if not isinstance(encoding, (ImageFile, resolve("encoding", "bytes"))):
            raise ConfigError(
                "ImageFiles reads columns of image files (jpeg, png) or bytes, not "
                f"{type(encoding).__name__}"
            )
        return _FileBytes(encoding)


class _FileBytes(Encoding):
    def __init__(self, stored: Encoding) -> None:
        self._stored = stored

    def encode(self, value: Any) -> bytes:
        return self._stored.encode(value)

    def decode(self, data: memoryview) -> bytes:
        file = bytes(data)
        if read_header(data) is None or not file.endswith(JPEG_END):
            _verify(data, self.max_value_bytes)
        return file


def _verify(data: memoryview, max_value_bytes: int) -> None:
    """Raise `DecodeError` if an image file for Pillow is too large, or damaged as far as is known."""
    picture = open_file(data, max_value_bytes)
    try:
        # A JPEG file, also one of several images, may go on after its end: it is decoded to find out.
        if picture.format in ("JPEG", "MPO"):
            picture.load()
        else:
            picture.verify()
    except (DecodeError, MemoryError):  # the latter is no damage
        raise
    except Exception as error:  # parsers of damaged files raise arbitrary errors
        raise DecodeError(f"cannot read the image: {type(error).__name__}: {error}") from error
