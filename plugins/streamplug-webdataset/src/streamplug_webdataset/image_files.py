"""Image files of arrays and of images of Pillow, as archives hold them."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError

_FORMATS = {
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "png": "PNG",
    "ppm": "PPM",
    "pgm": "PPM",
    "pbm": "PPM",
    "pnm": "PPM",
    "img": "JPEG",
    "image": "JPEG",
    "tif": "TIFF",
    "tiff": "TIFF",
    "webp": "WEBP",
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 100},
    "WEBP": {"lossless": True, "exact": True},  # exact: colours of transparent pixels, too
}
_GREY_MODES = {"pgm": "L", "pbm": "1"}
_ROUNDING = 0.001
"""How far beyond 0 and 1 values of real numbers may be, and are clipped."""


def is_image_extension(extension: str) -> bool:
    """Say whether values with an extension are image files that `image_file` makes."""
    return extension.rpartition(".")[2] in _FORMATS


def image_file(extension: str, image: Any) -> bytes:
    """Return the image file of an array or of an image of Pillow.

    Args:
        extension: Says the format. JPEG files have quality 100.
        image: An array of bytes, or of real numbers from 0 to 1, of shape ``[height, width]`` or
            ``[height, width, channels]`` with 1, 3 or 4 channels; or an image of Pillow.

    Raises:
        EncodeTypeError: If it is neither, or an array with a mask.
        EncodeError: If it has another shape or other values, or cannot be stored so.
        ConfigError: If Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(
            f"{extension!r}: image files of arrays need Pillow: pip install pillow"
        ) from None
    if isinstance(image, np.ndarray):
        image = Image.fromarray(_pixels(image))
    if not isinstance(image, Image.Image):
        raise EncodeTypeError(
            "expected the bytes of an image file, an array or an image of Pillow, got "
            f"{type(image).__name__}"
        )
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # what Pillow runs into
        raise EncodeError(
            f"the pixels of the image cannot be read: {type(error).__name__}: {error}; leave it out, or "
            "replace its file"
        ) from error
    ending = extension.rpartition(".")[2]
    if ending in _GREY_MODES:
        image = image.convert(_GREY_MODES[ending])
    form, out = _FORMATS[ending], BytesIO()
    try:
        image.save(out, form, **_OPTIONS.get(form, {}))
    except Exception as error:  # what Pillow runs into
        raise EncodeError(f"no {form} file of an image with mode {image.mode}: {error}") from error
    return out.getvalue()


def _pixels(image: Any) -> Any:
    if isinstance(image, np.ma.MaskedArray):
        raise EncodeTypeError("expected an array without a mask; call its filled() first")
    if image.dtype.kind == "f":
        low, high = (float(image.min()), float(image.max())) if image.size else (0.0, 0.0)
        if not -_ROUNDING < low <= high < 1 + _ROUNDING:
            raise EncodeError(
                f"an image of real numbers has values from 0 to 1, this one from {low} to {high}: scale "
                "it, or make it uint8"
            )
        image = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    if image.dtype != np.uint8:
        raise EncodeError(
            f"an image is an array of uint8 or of numbers from 0 to 1, this one of {image.dtype}"
        )
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.ndim != 2 and not (image.ndim == 3 and image.shape[2] in (3, 4)):
        raise EncodeError(
            f"an image has the shape [height, width] or [height, width, 1, 3 or 4], not {list(image.shape)}"
        )
    return np.ascontiguousarray(image)
