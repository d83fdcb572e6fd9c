"""Arrays as tenbin has them, and values as CBOR has them.

A file of tenbin is one chunk after the other: 8 bytes ``~TenBin~``, int64 the size of its content, and that,
filled up to a multiple of 64 bytes. An array is two chunks: a head, with 8 bytes for the name of its dtype, 8
for a note, int64 the number of dimensions and each of them; and its values. All are little-endian.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from math import prod
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import wrong_type_error

_MAGIC = b"~TenBin~"
_ALIGNED = 64
_MAX_NDIM = 9
_CHUNK = struct.Struct("<8sq")
_HEAD = struct.Struct("<8s8sq")
_NAMES = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])


class Ten(Encoding):
    """``ten``: a list of arrays of numbers, as a ``.ten`` file; notes on them are left out."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (list, tuple)):
            raise wrong_type_error("ten", "a list of arrays", value)
        out = bytearray()
        for array in value:
            if not isinstance(array, np.ndarray) or array.dtype.str[1:] not in _NAMES:
                raise wrong_type_error("ten", "a list of arrays of whole or real numbers", value)
            if isinstance(array, np.ma.MaskedArray):
                raise wrong_type_error("ten", "arrays without a mask (see filled())", array)
            if array.ndim > _MAX_NDIM:
                raise EncodeError(f"ten takes up to {_MAX_NDIM} dimensions, got {array.ndim}")
            name = array.dtype.str[1:].encode()
            head = _HEAD.pack(name, b"", array.ndim) + struct.pack(f"<{array.ndim}q", *array.shape)
            plain = array.astype(array.dtype.newbyteorder("<"), copy=False)
            for content in (head, plain.tobytes()):
                out += _CHUNK.pack(_MAGIC, len(content)) + content + bytes(-len(content) % _ALIGNED)
        return bytes(out)

    def decode(self, data: memoryview) -> list[Any]:
        chunks, at = [], 0
        while at < len(data):
            if len(data) - at < _CHUNK.size:
                raise DecodeError(f"a .ten file that was cut short at byte {len(data)}")
            magic, size = _CHUNK.unpack_from(data, at)
            begin = at + _CHUNK.size
            if magic != _MAGIC or size < 0 or size > len(data) - begin:
                raise DecodeError(f"not a .ten file: no chunk begins at byte {at}")
            chunks.append(data[begin : begin + size])
            at = begin + size + -size % _ALIGNED
        if len(chunks) % 2:
            raise DecodeError("a .ten file whose last array has no values")
        return [_array(head, values) for head, values in zip(chunks[::2], chunks[1::2])]


def _array(head: memoryview, values: memoryview) -> Any:
    if len(head) < _HEAD.size:
        raise DecodeError(f"the head of an array in a .ten file has {len(head)} bytes")
    name, _, dimensions = _HEAD.unpack_from(head)
    kind = name.rstrip(b"\0").decode("ascii", "replace")
    if kind not in _NAMES or not 0 <= dimensions <= _MAX_NDIM:
        raise DecodeError(f"a .ten file with an array of {kind!r} in {dimensions} dimensions")
    if len(head) != _HEAD.size + 8 * dimensions:
        raise DecodeError(f"the head of {dimensions} dimensions has {len(head)} bytes")
    shape, dtype = struct.unpack_from(f"<{dimensions}q", head, _HEAD.size), np.dtype(f"<{kind}")
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != len(values):
        raise DecodeError(f"an array of {kind} {shape} in a .ten file has {len(values)} bytes")
    try:
        return np.ndarray(shape, dtype, values).copy()
    except ValueError as error:  # an empty array whose other dimensions are beyond numpy
        raise DecodeError(f"an array of shape {shape}: {error}") from error


class Cbor(Encoding):
    """``cbor``: what CBOR (RFC 8949) can express; needs the package cbor2."""

    def encode(self, value: Any) -> bytes:
        try:
            data: bytes = _cbor2().dumps(value)
        except ConfigError:
            raise
        except Exception as error:  # what it runs into
            if re.match(r"cannot \w+ type", str(error)):
                raise wrong_type_error("cbor", "what CBOR can express", value) from error
            raise EncodeError(f"cbor: {type(error).__name__}: {error}") from error
        return data

    def decode(self, data: memoryview) -> Any:
        library = _cbor2()
        decoder = library.CBORDecoder(BytesIO(data))
        try:
            value = decoder.decode()
            with suppress(library.CBORDecodeEOF):
                decoder.read(1)
                raise DecodeError("something follows the value")
            return value
        except Exception as error:  # what it runs into
            raise DecodeError(f"not CBOR: {type(error).__name__}: {error}") from error


def _cbor2() -> Any:
    try:
        return import_module("cbor2")
    except ImportError:
        raise ConfigError(
            "values with the extension cbor need cbor2: pip install 'streamplug-webdataset[cbor]', or leave "
            "the column out with columns="
        ) from None
