"""Encodings of single numbers: of fixed size, little-endian, or as text, exact at any size."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import short_repr, windows, wrong_type_error
from streamplug.types import Bytes1D, ColumnValues

_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_CODES |= {"f2": "e", "f4": "f", "f8": "d"}
_REAL_TYPES = (int, float, np.floating, np.integer, np.bool_)


class _Scalar(Encoding):
    """A number of one dtype; decodes to a NumPy scalar."""

    dtype: np.dtype[Any]
    _pack: Callable[[Any], bytes]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "dtype" in cls.__dict__:
            cls.size = cls.dtype.itemsize
            cls._pack = struct.Struct("<" + _CODES[cls.dtype.str[1:]]).pack

    def decode(self, data: memoryview) -> Any:
        if len(data) != self.size:
            raise self._wrong_size(data)
        return np.frombuffer(data, self.dtype)[0]

    def bound_decoder(self, data: Bytes1D) -> Callable[..., Any]:
        numbers = windows(data, self.dtype)
        return lambda start: numbers[start]

    def _wrong_size(self, data: memoryview) -> DecodeError:
        return DecodeError(f"{self._name} has {self.size} bytes, got {len(data)}")

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()


class _Integer(_Scalar):
    def encode(self, value: Any) -> bytes:
        if type(value) is int:
            try:
                return self._pack(value)
            except struct.error:
                pass  # raised below with a message
        number = _integer(self._name, value)
        try:
            return number.to_bytes(self.dtype.itemsize, "little", signed=self.dtype.kind == "i")
        except OverflowError:
            info = np.iinfo(self.dtype)
            raise EncodeError(
                f"{self._name} takes {info.min} to {info.max}, got {short_repr(value)}"
            ) from None

    def encode_batch(self, values: Sequence[Any] | NDArray[Any]) -> list[bytes] | Bytes1D:
        if isinstance(values, np.ma.MaskedArray):  # asarray() would return what the mask hides
            return super().encode_batch(values)
        try:
            array = np.asarray(values)
        except ValueError:  # ragged
            return super().encode_batch(values)
        info = np.iinfo(self.dtype)
        if (
            array.ndim != 1
            or array.dtype.kind not in "iub"
            or int(array.min(initial=0)) < info.min
            or int(array.max(initial=0)) > info.max
        ):
            return super().encode_batch(values)  # names the invalid value, if any
        return array.astype(self.dtype).view(np.uint8)


class _Float(_Scalar):
    def encode(self, value: Any) -> bytes:
        if type(value) is float and value - value == 0:  # finite; NumPy keeps the bits of a NaN
            try:
                return self._pack(value)
            except OverflowError:
                raise self._too_large(value) from None
        value = _real(self._name, value)
        try:
            with np.errstate(all="ignore"):
                stored = np.array(value, self.dtype)
        except OverflowError:
            raise self._too_large(value) from None
        if _has_overflowed(stored, value):
            raise self._too_large(value)
        return stored.tobytes()

    def _too_large(self, value: Any) -> EncodeError:
        limit = np.finfo(self.dtype).max
        return EncodeError(
            f"{self._name} takes {-limit} to {limit} and infinities, got {short_repr(value)}; "
            "clip it, or take a larger type"
        )

    def encode_batch(self, values: Sequence[Any] | NDArray[Any]) -> list[bytes] | Bytes1D:
        if isinstance(values, np.ndarray):
            real = values.ndim == 1 and values.dtype.kind in "fiub"
            real = real and not isinstance(values, np.ma.MaskedArray)
        else:
            types = set(map(type, values))
            real = (
                all(issubclass(cls, _REAL_TYPES) for cls in types) and np.timedelta64 not in types
            )
        if not real:
            return super().encode_batch(values)
        try:
            with np.errstate(all="ignore"):
                stored = np.array(values, self.dtype)
        except OverflowError:
            return super().encode_batch(values)
        if not (isinstance(values, np.ndarray) and np.can_cast(values.dtype, self.dtype)):
            infinite = np.isinf(stored)
            # Those of an array are compared at once. One by one, the invalid value is named, if any.
            if infinite.any() and not (
                isinstance(values, np.ndarray) and np.array_equal(infinite, np.isinf(values))
            ):
                return super().encode_batch(values)
        return stored.view(np.uint8)


def _sized(base: type[_Scalar], name: str, code: str) -> type[Any]:
    doc = f"``{name.lower()}``."
    return type(name, (base,), {"__module__": __name__, "__doc__": doc, "dtype": np.dtype(code)})


Int8 = _sized(_Integer, "Int8", "<i1")
Int16 = _sized(_Integer, "Int16", "<i2")
Int32 = _sized(_Integer, "Int32", "<i4")
Int64 = _sized(_Integer, "Int64", "<i8")
UInt8 = _sized(_Integer, "UInt8", "<u1")
UInt16 = _sized(_Integer, "UInt16", "<u2")
UInt32 = _sized(_Integer, "UInt32", "<u4")
UInt64 = _sized(_Integer, "UInt64", "<u8")
Float16 = _sized(_Float, "Float16", "<f2")
Float32 = _sized(_Float, "Float32", "<f4")
Float64 = _sized(_Float, "Float64", "<f8")


class Int(_Integer):
    """``int``: stored as int64, decodes to a Python int."""

    dtype = np.dtype("<i8")

    def decode(self, data: memoryview) -> int:
        if len(data) != self.size:
            raise self._wrong_size(data)
        return int.from_bytes(data, "little", signed=True)

    def bound_decoder(self, data: Bytes1D) -> Callable[..., int]:
        item: Callable[..., int] = windows(data, self.dtype).item
        return item

    def unbatch(self, batch: ColumnValues) -> Sequence[Any]:
        return np.asarray(batch).tolist()  # type: ignore[no-any-return]  # NumPy says Any


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
        number = _integer("str_int", value)
        try:
            return str(number).encode()
        except ValueError as error:  # more digits than sys.get_int_max_str_digits()
            raise EncodeError(f"str_int: {error}") from error


class StrFloat(_Text):
    """``str_float``: a real number as float64, in the shortest digits that round-trip."""

    item = np.dtype("float64")

    _number = float

    def encode(self, value: Any) -> bytes:
        number = _real("str_float", value)
        try:
            stored = float(number)
        except OverflowError:
            stored = math.inf
        if _has_overflowed(stored, number):
            raise EncodeError(
                f"str_float takes the numbers of float64, got {short_repr(value)}; store it as str_int or "
                "str_decimal"
            )
        return float.__repr__(stored).encode()


class StrDecimal(_Text):
    """``str_decimal``: a `decimal.Decimal` with all its digits."""

    _number = Decimal

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, Decimal):
            raise wrong_type_error("str_decimal", "a decimal.Decimal", value)
        return str(value).encode()


def _integer(encoding: str, value: Any) -> int:
    """Return an integer, a bool, or the one in an array of no dimension, as an int."""
    number = _item(value)
    try:
        if not isinstance(number, np.ndarray):  # NumPy ignores its mask
            return int(number) if isinstance(number, np.bool_) else operator.index(number)
    except TypeError:
        pass
    raise wrong_type_error(encoding, "an integer", value)


def _real(encoding: str, value: Any) -> Any:
    """Return a real number, a bool, or the one in an array of no dimension, of a type of `_REAL_TYPES`."""
    number = _item(value)
    # NumPy takes durations for integers.
    if not isinstance(number, _REAL_TYPES) or isinstance(number, np.timedelta64):
        raise wrong_type_error(encoding, "a real number", value)
    return number


def _has_overflowed(stored: Any, number: Any) -> bool:
    """Return whether what is stored of a finite number is infinite."""
    # What is infinite is of a type that can be.
    was_infinite = isinstance(number, (float, np.floating)) and np.isinf(number)
    return bool(np.isinf(stored)) and not was_infinite


def _item(value: Any) -> Any:
    """Return what is in an array or a tensor of no dimension; other values as they are."""
    if isinstance(value, (np.generic, np.ma.MaskedArray)) or getattr(value, "ndim", None) != 0:
        return value
    return value[()] if isinstance(value, np.ndarray) else value.item()
