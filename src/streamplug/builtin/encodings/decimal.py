"""Encodings of numbers as text, exact at any size."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import numpy as np

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import wrong_type_error


class _Text(Encoding):
    _number: ClassVar[type[Any]]

    def decode(self, data: memoryview) -> Any:
        try:
            return self._number(str(data, "utf-8"))
        except (ValueError, InvalidOperation) as error:
            kind = self._number.__name__
            raise DecodeError(f"not {kind} as text: {bytes(data[:80])!r}") from error


class StrInt(_Text):
    """``str_int``: an integer of any size, in decimal digits."""

    item = np.dtype("int64")

    _number = int

    def encode(self, value: Any) -> bytes:
        # NumPy takes durations for integers.
        if not isinstance(value, (int, np.integer)) or isinstance(value, np.timedelta64):
            raise wrong_type_error("str_int", "an integer", value)
        try:
            return str(int(value)).encode()
        except ValueError as error:  # more digits than sys.get_int_max_str_digits()
            raise EncodeError(f"str_int: {error}") from error


class StrFloat(_Text):
    """``str_float``: a float, in the shortest digits that round-trip."""

    item = np.dtype("float64")

    _number = float

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, float):
            raise wrong_type_error("str_float", "a float", value)
        return float.__repr__(value).encode()


class StrDecimal(_Text):
    """``str_decimal``: a `decimal.Decimal` with all its digits."""

    _number = Decimal

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, Decimal):
            raise wrong_type_error("str_decimal", "a decimal.Decimal", value)
        return str(value).encode()
