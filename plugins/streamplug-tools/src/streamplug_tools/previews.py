"""Previews of single values, of bounded size, that never run code."""

from __future__ import annotations

import json
import math
import numbers
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from typing import Any

import numpy as np

from streamplug.errors import UnknownNameError
from streamplug.interfaces import Encoding
from streamplug.plugin import make

_MAX_TEXT_CHARS = 400
_MAX_DECODED_BYTES = 32 << 20
"""Larger stored values are not decoded."""
_MAX_PIXELS = 64_000_000
_THUMBNAIL_PIXELS = 192
_MAX_IMAGES = 3
_IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"RIFF")
"""First bytes of image files; all images are encoded again."""


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small copy of an image, encoded again.

    Attributes:
        type: ``image/jpeg`` or ``image/png``.
        data: The image file.
        width: Width in pixels.
        height: Height in pixels.
        about: Size and format of the original.
    """

    type: str
    data: bytes
    width: int
    height: int
    about: str


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a value.

    Attributes:
        text: Text, or description of an image; empty if there is only a note.
        images: The first images of the value.
        note: Why it is not shown, or what was left out.
        measure: Meaning of `number`: ``"characters"``, ``"length"``, ``"value"``, or empty.
        number: The measured number.
    """

    text: str = ""
    images: tuple[Thumbnail, ...] = ()
    note: str = ""
    measure: str = ""
    number: float = math.nan


def preview(
    encoding: Encoding, stored: bytes, *, draw: bool = True, allow_unsafe_types: bool = False
) -> Preview:
    """Return the preview of a stored value.

    Args:
        encoding: Encoding of the value.
        stored: Stored bytes.
        draw: Whether to make thumbnails; else images are only described.
        allow_unsafe_types: Whether to decode if decoding can run code.
    """
    if encoding.unsafe and not allow_unsafe_types:
        return Preview(note="not decoded, as that can run code")
    if len(stored) > _MAX_DECODED_BYTES:
        return Preview(note=f"not decoded: {len(stored):,} bytes")
    try:
        return _of(encoding.decode(memoryview(stored)), draw)
    except Exception as error:  # noqa: BLE001 - encodings raise arbitrary errors for damaged data
        return _undecodable(error)


def preview_value(value: Any, *, draw: bool = True) -> Preview:
    """Return the preview of a decoded value, see `preview`."""
    try:
        return _of(value, draw)
    except Exception as error:  # noqa: BLE001 - images raise arbitrary errors when decoded
        return _undecodable(error)


def _undecodable(error: Exception) -> Preview:
    return Preview(note=_cut(f"cannot be decoded: {type(error).__name__}: {error}", 200))


def _of(value: Any, draw: bool) -> Preview:
    if value is None:
        return Preview(note="no value")
    if (show := getattr(value, "_repr_png_", None)) is not None and not _is_image(value):
        return _of_picture(value, show, draw)
    if _is_image(value):
        value = [value]
    if isinstance(value, (list, tuple)) and value and all(map(_is_image, value)):
        return _of_images(value, draw)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _of_bytes(bytes(value), draw)
    if isinstance(value, np.ndarray) and value.shape:
        return _of_array(value)
    if isinstance(value, (numbers.Real, np.bool_, np.floating, np.integer)):
        return _of_number(value)
    if isinstance(value, list):
        return replace(_of_text(_json(value)), measure="length", number=len(value))
    if isinstance(value, dict):
        value = _json(value)
    return _of_text(value) if isinstance(value, str) else Preview(_cut(str(value)))


def _of_picture(value: Any, show: Callable[[], bytes], draw: bool) -> Preview:
    """Return the preview of a value that notebooks show as a picture, by the method `_repr_png_`."""
    text = _cut(repr(value))
    if not draw:
        return Preview(text)
    drawn = _of_bytes(show(), draw)
    if not drawn.images:
        return Preview(text, note=drawn.note)
    return Preview(text, tuple(replace(image, about=text.strip("<>")) for image in drawn.images))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _of_number(value: Any) -> Preview:
    try:
        number = float(value)
    except OverflowError:  # of a large integer
        number = math.inf
    whole = math.isfinite(number) and number == int(number)
    text = f"{value}" if whole or isinstance(value, int) else f"{number:.6g}"
    return Preview(_cut(text), measure="value", number=number)


def _of_text(text: str) -> Preview:
    rest = len(text) - _MAX_TEXT_CHARS
    note = f"… {rest:,} more characters" if rest > 0 else ""
    return Preview(text[:_MAX_TEXT_CHARS], note=note, measure="characters", number=len(text))


def _of_array(array: np.ndarray[Any, Any]) -> Preview:
    first = ", ".join(str(number) for number in islice(array.flat, 24))
    more = ", …" if array.size > 24 else ""
    about = f"{array.dtype} {list(array.shape)}"
    return Preview(
        _cut(f"{first}{more}"), note=about, measure="length", number=float(array.shape[0])
    )


def _of_bytes(data: bytes, draw: bool) -> Preview:
    if data.startswith(_IMAGE_SIGNATURES):
        try:
            return _of_images([make("encoding", "jpeg").decode(memoryview(data))], draw)
        except UnknownNameError as error:
            note = _missing(error)
        except Exception:  # noqa: BLE001 - damaged images raise arbitrary errors
            note = f"{len(data):,} bytes"
    else:
        note = f"{len(data):,} bytes"
    try:
        text = getincrementaldecoder("utf-8")().decode(data[: 4 * _MAX_TEXT_CHARS])
    except UnicodeDecodeError:
        text = data[:32].hex(" ") + (" …" if len(data) > 32 else "")
    return Preview(_cut(text), note=note, measure="length", number=len(data))


def _missing(error: Exception) -> str:
    return f"an image, shown where streamplug-image is installed: {error}"


# -- images of Pillow, recognized by their attributes -----------------------------------


def _is_image(value: object) -> bool:
    return all(hasattr(value, name) for name in ("mode", "size", "thumbnail", "convert", "save"))


def _of_images(images: Sequence[Any], draw: bool) -> Preview:
    text = "; ".join(map(_about, images[:_MAX_IMAGES]))
    more = f"{len(images):,} images" if len(images) > 1 else ""
    if not draw:
        return Preview(text, note=more)
    drawn = [image for image in images[:_MAX_IMAGES] if 0 < math.prod(image.size) <= _MAX_PIXELS]
    note = more if drawn else "without pixels, or too large to be shown"
    return Preview(text, tuple(map(_thumbnail, drawn)), note)


def _about(image: Any) -> str:
    width, height = image.size
    return _cut(f"{width:,} × {height:,} {getattr(image, 'format', None) or image.mode}", 60)


def _thumbnail(image: Any) -> Thumbnail:
    about = _about(image)
    # Decodes at a lower resolution where the format supports it.
    image.thumbnail((_THUMBNAIL_PIXELS, _THUMBNAIL_PIXELS))
    clear = image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info
    image = image.convert("RGBA" if clear else "RGB")
    kind = "png" if clear or max(image.size) <= 64 else "jpeg"
    out = BytesIO()
    image.save(out, kind, **({"quality": 80} if kind == "jpeg" else {}))
    return Thumbnail(f"image/{kind}", out.getvalue(), image.width, image.height, about)


def _cut(text: str, characters: int = _MAX_TEXT_CHARS) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
