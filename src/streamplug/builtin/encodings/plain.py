"""Encodings of bytes and text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding, GatherBuffer, VectorColumn
from streamplug.plugin_kit import wrong_type_error
from streamplug.types import Bytes1D, ColumnValues, Int64

_SHORT_VALUE_BYTES = 64
"""Mean bytes per text up to which a batch is decoded faster as one string than one by one."""


class Bytes(Encoding, VectorColumn):
    """``bytes``: stored as they are."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise wrong_type_error("bytes", "bytes, a bytearray or a memoryview", value)
        return bytes(value)

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)

    def bound_decoder(self, data: Bytes1D) -> Callable[..., bytes]:
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        return lambda start, stop: view[start:stop].tobytes()

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        return [data.tobytes() for data in buffer.slices(starts, sizes)]

    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        counts, rest = np.divmod(sizes, dtype.itemsize)
        return np.where(rest == 0, counts, -1)


class Str(Encoding):
    """``str``: stored as UTF-8."""

    item = np.dtype("U")

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise wrong_type_error("str", "a str", value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"str takes what UTF-8 can hold, got {value!r:.80}") from error

    def decode(self, data: memoryview) -> str:
        return decode_utf8(data)

    def bound_decoder(self, data: Bytes1D) -> Callable[..., str]:
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        return lambda start, stop: view[start:stop].tobytes().decode()

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        if int(sizes.sum()) <= _SHORT_VALUE_BYTES * len(sizes):
            try:
                *texts, _ = str(buffer.join(starts, sizes).data, "utf-8").split("\0")
            except UnicodeDecodeError:
                texts = []
            if len(texts) == len(sizes):  # else one is invalid or contains a NUL
                return texts
        return [decode_utf8(data) for data in buffer.slices(starts, sizes)]


def decode_utf8(data: memoryview) -> str:
    """Decode UTF-8; raise `DecodeError` if invalid."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8: {error.reason} at byte {error.start}") from error
