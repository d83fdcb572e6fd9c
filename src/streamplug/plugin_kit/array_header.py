"""Specs of encodings of arrays, and the shapes that they store in front of the values."""

from __future__ import annotations

import struct

from streamplug.errors import ConfigError, DecodeError, EncodeError

_DIMENSION = "BHIQ"
_MAX_NDIM = 63


def parse_array_spec(
    encoding: str, argument: str | None
) -> tuple[str | None, tuple[int, ...] | None]:
    """Return the dtype and the shape in the argument of a spec: None, ``DTYPE`` or ``DTYPE:D0,D1,...``.

    Raises:
        ConfigError: If a dimension is no integer.
    """
    if argument is None:
        return None, None
    dtype, colon, dimensions = argument.partition(":")
    if not colon:
        return dtype, None
    try:
        return dtype, tuple(int(dimension) for dimension in dimensions.split(",") if dimensions)
    except ValueError:
        raise ConfigError(
            f"{encoding} shape must be integers with commas between them, got {dimensions!r}"
        ) from None


def pack_shape(encoding: str, shape: tuple[int, ...]) -> bytes:
    """Return the stored form of a shape, all integers little-endian.

    It is the number of dimensions ``<< 2 | k`` as uint8, then each dimension as ``uint{8 << k}``, with k the
    smallest of 0 to 3 that fits all of them.

    Raises:
        EncodeError: If there are more than 63 dimensions.
    """
    if len(shape) > _MAX_NDIM:
        raise EncodeError(f"{encoding} takes up to {_MAX_NDIM} dimensions, got {len(shape)}")
    largest = max(shape, default=0)
    k = next(k for k in range(4) if largest < 1 << (8 << k))
    return struct.pack(f"<B{len(shape)}{_DIMENSION[k]}", len(shape) << 2 | k, *shape)


def unpack_shape(encoding: str, data: memoryview, start: int) -> tuple[tuple[int, ...], int]:
    """Return the shape that is stored at `start`, and the end of its stored form.

    Raises:
        DecodeError: If the data are too short for it.
    """
    if start >= len(data):
        raise DecodeError(f"a value of {encoding} of {len(data)} bytes lacks its shape")
    ndim, k = divmod(data[start], 4)
    end = start + 1 + (ndim << k)
    if end > len(data):
        raise DecodeError(
            f"a value of {encoding} of {len(data)} bytes cannot have {ndim} dimensions"
        )
    return struct.unpack_from(f"<{ndim}{_DIMENSION[k]}", data, start + 1), end
