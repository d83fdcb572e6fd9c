"""Bytes and text."""

from __future__ import annotations

from typing import Any

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces.encoding import Encoding, slices, wrong_type
from streamplug.types import Bytes1D, ColumnValues, Int64


class Bytes(Encoding):
    """``bytes``: stored as they are."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise wrong_type("bytes", "bytes, a bytearray or a memoryview", value)
        return bytes(value)

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)

    def decode_batch(self, buffer: Bytes1D, starts: Int64, sizes: Int64) -> ColumnValues:
        return [bytes(data) for data in slices(buffer, starts, sizes)]


class Str(Encoding):
    """``str``: stored as UTF-8."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise wrong_type("str", "a str", value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"str takes what UTF-8 can hold, got {value!r:.80}") from error

    def decode(self, data: memoryview) -> str:
        return decode_utf8(data)

    def decode_batch(self, buffer: Bytes1D, starts: Int64, sizes: Int64) -> ColumnValues:
        return [decode_utf8(data) for data in slices(buffer, starts, sizes)]


def decode_utf8(data: memoryview) -> str:
    """Return the text that is stored as UTF-8.

    Raises:
        DecodeError: If it is not UTF-8.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8: {error.reason} at byte {error.start}") from error
