"""Serialization of NumPy arrays within other values."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeTypeError

DTYPES = {
    np.dtype(name).newbyteorder("<").str.encode(): np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
"""Dtypes by their stored name, of three ASCII characters such as ``<f4``, or four as in ``<c16``."""


def pack_array(array: NDArray[Any]) -> bytes:
    """Serialize an array.

    Raises:
        EncodeTypeError: If its dtype is none of `DTYPES` in either byte order.
    """
    name = array.dtype.newbyteorder("<").str.encode()
    if name not in DTYPES or isinstance(array, np.ma.MaskedArray):
        known = ", ".join(dtype.name for dtype in DTYPES.values())
        kind = f"{type(array).__name__} of {array.dtype}"
        raise EncodeTypeError(f"msgpack takes arrays of {known}, got {kind}")
    head = struct.pack(f"<B{len(name)}sB{array.ndim}Q", len(name), name, array.ndim, *array.shape)
    return head + array.astype(DTYPES[name], copy=False).tobytes()


def unpack_array(data: bytes) -> NDArray[Any]:
    """Deserialize an array of `pack_array`; it is writable.

    Raises:
        DecodeError: If the bytes are not such an array.
    """
    try:
        start = 1 + data[0]
        dtype = DTYPES[data[1:start]]
        shape = struct.unpack_from(f"<{data[start]}Q", data, start + 1)
        start += 1 + 8 * len(shape)
        if prod(shape) * dtype.itemsize != len(data) - start:
            raise ValueError(f"shape {shape} of {dtype} has not {len(data) - start} bytes")
        array: NDArray[Any] = np.ndarray(shape, dtype, data, start).copy()
    except (LookupError, struct.error, ValueError) as error:
        raise DecodeError(f"not an array: {type(error).__name__}: {error}") from error
    return array
