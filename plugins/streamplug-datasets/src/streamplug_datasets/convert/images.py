"""Reads image files, and finds those that are damaged."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from streamplug_image.files import open_file
from streamplug_image.pictures import picture_array

from streamplug.errors import DataError
from streamplug_datasets.convert import files

_JPEG, _END = b"\xff\xd8\xff", b"\xff\xd9"


def jpeg(path: Path) -> tuple[bytes, tuple[int, int]]:
    """Return a file as one of JPEG, and the width and height of the image.

    JPEG files stay as they are; a file of another kind, such as the one PNG among the JPEGs of ImageNet, is
    converted. The pixels are decoded only where the end of a JPEG file is not where it should be.

    Raises:
        NotFound: If there is no such file.
        DataError: If it is empty, no image, or cut short.
    """
    data = files.file(path).read_bytes()
    try:
        with open_file(memoryview(data)) as image:
            if not data.startswith(_JPEG):
                out = BytesIO()
                to_rgb(image).save(out, "JPEG", quality=95, subsampling=0)
                return out.getvalue(), image.size
            if not data.endswith(_END):
                image.load()
            return data, image.size
    except Exception as error:  # the parsers of a damaged file raise what they run into
        raise _damaged(path, error) from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image as RGB; values of 16 bits are scaled to 8, where Pillow would cut them off.

    Raises:
        DecodeError: If it has values that are not of 16 bits, such as floats.
    """
    if image.mode.startswith(("I", "F")):
        image = Image.fromarray(picture_array(image, "L")[:, :, 0])
    return image.convert("RGB")


def classes(path: Path, max_classes: int) -> tuple[bytes, tuple[int, int]]:
    """Return a PNG file whose pixels are numbers of classes, and the width and height of the image.

    Args:
        path: The file.
        max_classes: The highest number that there is.

    Raises:
        NotFound: If there is no such file.
        DataError: If it is no such image, is cut short, or has a higher number.
    """
    data = files.file(path).read_bytes()
    try:
        with Image.open(BytesIO(data), formats=["PNG"]) as image:
            pixels: NDArray[np.uint8] = np.asarray(image)
    except Exception as error:
        raise _damaged(path, error) from error
    if image.mode not in ("L", "P"):
        raise DataError(
            f"{path}: an image of mode {image.mode}; expected L or P, a number for each pixel"
        )
    if pixels.max() > max_classes:
        raise DataError(f"{path}: class {pixels.max()}, where the highest is {max_classes}")
    return data, image.size


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: no such image, or damaged: {type(error).__name__}: {error}")
