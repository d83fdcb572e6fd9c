"""Images of Pillow that decode their pixels on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from PIL import Image

from streamplug.errors import DecodeError, StreamplugError
from streamplug.interfaces import LazyValue

READABLE = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM") + ("AVIF",) * bool(
    find_spec("PIL.AvifImagePlugin")  # since Pillow 11.3
)
"""Formats that are read: other writers store any bytes, whatever the name of the encoding."""


class LazyImage(LazyValue):
    """Base, beside a class of Pillow, of image files that raise a `DecodeError` of their place if damaged."""

    _file: BytesIO | None = None  # unless all pixels are decoded
    _damage: DecodeError | None = None

    def load(self) -> Any:
        """Decode the pixels, as Pillow does."""
        if self._damage is None:
            pixels = self._call(super().load)  # type: ignore[misc]  # of the class of Pillow
            if getattr(self, "_fp", None) is None:  # there are no more frames
                self._file = None
            return pixels
        # A second call of Pillow's may go on where the first one failed, and return what was decoded.
        raise self.name_place(self._damage)

    def seek(self, frame: int) -> Any:
        """Go to a frame, as Pillow does."""
        return self._call(super().seek, frame)  # type: ignore[misc]  # of the class of Pillow

    def decode_whole(self) -> None:
        self.load()
        for frame in range(1, self._call(getattr, self, "n_frames", 1)):
            self.seek(frame)
            self.load()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        file = self._file
        try:
            return function(*arguments)
        except (MemoryError, StreamplugError, EOFError):
            raise
        except Exception as error:  # decoders of damaged files raise arbitrary errors
            if file is None or file.closed:  # by the user
                raise
            reason = f"cannot decode the image: {type(error).__name__}: {error}"
            self._damage = DecodeError(reason)
            raise self.name_place(self._damage) from error

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = self._file
        try:
            self.load()
        except DecodeError:
            if file is None:
                raise
            # Raised where the image is used: in a worker, torch pickles in a thread, which would lose it.
            return open_lazily, (file.getvalue(), None if self.place is None else str(self.place))
        image: Any = self
        return _new, (type(self).__bases__[1],), image.__getstate__()


def open_lazily(data: bytes | memoryview, place: object = None) -> Image.Image:
    """Open an image file as a `LazyImage`; raise what Pillow raises."""
    file = BytesIO(data)
    image: Any = Image.open(file, formats=READABLE)
    image.__class__ = _lazy_class(type(image))  # type: ignore[arg-type]  # a class is hashable
    vars(image).update(place=place, _file=file)
    opened: Image.Image = image
    return opened


def _new(kind: type[Image.Image]) -> Image.Image:
    return kind.__new__(kind)


@cache
def _lazy_class(kind: type[Image.Image]) -> Any:
    # Its name is that of Pillow's class, which users know.
    return type(kind.__name__, (LazyImage, kind), {"__module__": kind.__module__})
