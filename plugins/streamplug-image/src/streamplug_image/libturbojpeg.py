"""Decoding of parts of JPEG files by a libturbojpeg of version 3 or later, if there is one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from math import gcd
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_NAMES = ("libturbojpeg.so.0", "libturbojpeg.dylib", "turbojpeg.dll")
_DECOMPRESS = 1  # TJINIT_DECOMPRESS
_PIXEL_FORMATS = {"RGB": 0, "L": 6, "RGBA": 7}  # TJPF_RGB, TJPF_GRAY, TJPF_RGBA


class _CropRegion(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "w", "h")]


class _Factor(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("num", "denom")]


_FACTORS = {n: _Factor(n // gcd(n, 8), 8 // gcd(n, 8)) for n in range(1, 9)}
"""Scales by their eighths; the library knows reduced fractions only."""


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the library of the distribution `turbojpeg` or of the system; None without one that crops."""
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
            if not hasattr(library, "tj3SetCroppingRegion"):  # before version 3
                continue
        except OSError:
            continue
        pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        library.tj3Init.restype = pointer
        library.tj3Destroy.argtypes = [pointer]
        library.tj3DecompressHeader.argtypes = [pointer, pointer, size]
        library.tj3SetScalingFactor.argtypes = [pointer, _Factor]
        library.tj3SetCroppingRegion.argtypes = [pointer, _CropRegion]
        library.tj3Decompress8.argtypes = [pointer, pointer, size, pointer, number, number]
        return library
    return None


def _paths() -> Iterator[str]:
    spec = find_spec("turbojpeg")  # its module is not imported: it has no crops
    if spec is not None and spec.origin:
        libraries = Path(spec.origin).parent.glob("turbojpeg.libs/*turbojpeg*")
        yield from map(str, sorted(libraries))
    yield from _NAMES


class _Decompressor:
    """A decompressor for one thread at a time."""

    def __init__(self) -> None:
        self.library = load_library()
        self.handle = self.library and self.library.tj3Init(_DECOMPRESS)

    def __del__(self) -> None:
        if self.library and self.handle:
            self.library.tj3Destroy(self.handle)


class _ThreadState(threading.local):
    # Not the decompressor itself: the end of a thread frees its attributes without calling `__del__`.
    def __init__(self) -> None:
        self.decompressor = _Decompressor()


_thread_state = _ThreadState()


def decode_region(
    data: memoryview,
    mode: str,
    eighths: int,
    region: tuple[int, int, int, int],
    out: NDArray[np.uint8],
) -> bool:
    """Decode a part of a JPEG file that was scaled; return whether that succeeded without a warning.

    Args:
        data: The file.
        mode: One of `streamplug_image.pixels.CHANNELS`.
        eighths: The scale, from 1 to 8.
        region: Left, top, width and height of the part, in pixels of the scaled image. `left` is a multiple
            of ``4 * eighths``, which is a multiple of the width of its blocks.
        out: Array to write to, contiguous, of shape ``[height, width, channels]``.
    """
    decompressor = _thread_state.decompressor
    library, handle = decompressor.library, decompressor.handle
    if library is None or not handle:
        return False
    file = np.frombuffer(data, np.uint8)
    source = file.__array_interface__["data"][0], len(file)
    return not (
        library.tj3DecompressHeader(handle, *source)
        or library.tj3SetScalingFactor(handle, _FACTORS[eighths])
        or library.tj3SetCroppingRegion(handle, _CropRegion(*region))
        or library.tj3Decompress8(
            handle, *source, out.__array_interface__["data"][0], 0, _PIXEL_FORMATS[mode]
        )
    )
