"""MessagePack encoding of nested values."""

from __future__ import annotations

import re
from typing import Any

import msgpack
import numpy as np

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import short_repr, wrong_type_error
from streamplug_msgpack.arrays import pack_array, unpack_array

_UNCHECKED_BYTES = 1 << 20
"""Bytes of a value whose nested counts do little harm: pages of empty lists are not touched."""

_ARRAY, _SCALAR, _INTEGER = 1, 2, 3
"""Extension types; part of the stored data, so their meaning must never change."""

_EXTENSION = re.compile(rb"[\xc7-\xc9\xd4-\xd8]")
"""First byte of an extension type or a timestamp; it may also be part of another value."""


class Msgpack(Encoding):
    """``msgpack``: a MessagePack document with numpy arrays, numpy scalars and large integers."""

    def encode(self, value: Any) -> bytes:
        packing = _Packing()
        try:
            data: bytes = msgpack.packb(
                value, default=packing.extend, strict_types=True, datetime=True
            )
            if packing.uncertain or _EXTENSION.search(data):
                packing.check(data)
        except EncodeError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EncodeError(f"msgpack cannot hold {short_repr(value)}: {error}") from error
        return data

    def decode(self, data: memoryview) -> Any:
        try:
            if len(data) > _UNCHECKED_BYTES:
                self._check_counts(data)
            return msgpack.unpackb(data, ext_hook=_restore, strict_map_key=False, timestamp=3)
        except DecodeError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DecodeError(f"not msgpack: {type(error).__name__}: {error}") from error

    def _check_counts(self, data: memoryview) -> None:
        """Raise ValueError unless all items are there, before lists of as many are allocated."""
        unpacker = msgpack.Unpacker(max_buffer_size=len(data), strict_map_key=False)
        unpacker.feed(data)
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            raise ValueError("it ends early") from None


class _Packing:
    """Serialization of one value.

    Attributes:
        uncertain: Whether it has tuples: they become lists, which cannot be keys of a dict.
        extensions: Number of values that became extension types.
    """

    def __init__(self) -> None:
        self.uncertain = False
        self.extensions = 0

    def check(self, data: bytes) -> None:
        """Raise TypeError, ValueError or OverflowError if the packed value cannot be restored."""
        codes: list[int] = []

        def note(code: int, _: bytes) -> int:
            codes.append(code)
            return len(codes)

        msgpack.unpackb(data, ext_hook=note, strict_map_key=False, timestamp=3)
        if len(codes) != self.extensions:
            raise ValueError(
                "it has extension types that are not of this encoding (msgpack.ExtType)"
            )

    def extend(self, value: object) -> Any:
        """Convert a value of a type that msgpack does not support."""
        if isinstance(value, np.ndarray):
            return self._extension(_ARRAY, pack_array(value))
        if isinstance(value, np.generic) and not isinstance(value, (str, bytes)):
            return self._extension(_SCALAR, pack_array(np.asarray(value)))
        if type(value) is int:
            size = value.bit_length() // 8 + 1
            return self._extension(_INTEGER, value.to_bytes(size, "little", signed=True))
        if type(value) is tuple:
            self.uncertain = True
            return list(value)
        raise wrong_type_error("msgpack", "nested plain values and numpy arrays", value)

    def _extension(self, code: int, data: bytes) -> Any:
        self.extensions += 1
        return msgpack.ExtType(code, data)


def _restore(code: int, data: bytes) -> object:
    if code == _ARRAY:
        return unpack_array(data)
    if code == _SCALAR:
        array = unpack_array(data)
        if array.ndim:
            raise DecodeError(f"a scalar has no shape, got {array.shape}")
        return array[()]
    if code == _INTEGER:
        return int.from_bytes(data, "little", signed=True)
    raise DecodeError(f"extension type {code} has no meaning here")
