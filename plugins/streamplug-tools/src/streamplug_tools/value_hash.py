"""Hashes of values that are the same in every process, on every machine and in every version.

The hashed bytes are defined for each type, see `hashed_bytes`. Equal numbers have equal bytes, whatever their
type and width, but for floats of 2**63 and more. So have equal times of any unit, and lists, tuples and
arrays of equal values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import xxhash

_MARK = b"\xff"
"""First byte of what is neither a number, text nor bytes; no UTF-8 text contains it."""
_MISSING = _MARK + b"null"
_NAN = struct.pack("<Q", 0x7FF8000000000000)
_MAX_DECIMAL_DIGITS = 20
"""Digits of 2**64: an exponent can stand for gigabytes of them."""
_MAX_SEED = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_ATTOSECONDS = {
    unit: per_second * 10**power
    for unit, per_second, power in (
        *(("W", 604_800, 18), ("D", 86_400, 18), ("h", 3600, 18), ("m", 60, 18), ("s", 1, 18)),
        *(("ms", 1, 15), ("us", 1, 12), ("ns", 1, 9), ("ps", 1, 6), ("fs", 1, 3), ("as", 1, 0)),
    )
}
"""Attoseconds of each unit of NumPy's times of fixed length."""


def xxh64(value: Any, seed: int = 0) -> int:
    """Return the XXH64 hash of a value as an integer from 0 to 2**64 - 1; see `hashed_bytes`.

    Args:
        value: The value.
        seed: Seed of the hash, from 0 to 2**64 - 1.

    Raises:
        TypeError: If the value is of a type that has no defined bytes.
        ValueError: If the seed is out of range, or a time is finer than nanoseconds.
    """
    given: Any = seed  # unchecked so far
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= seed <= _MAX_SEED:
        raise ValueError(f"xxh64: seed={seed!r:.40}: expected a whole number from 0 to 2**64 - 1")
    return xxhash.xxh64_intdigest(hashed_bytes(value), seed)


def hashed_bytes(value: Any) -> bytes:  # noqa: C901, PLR0911, PLR0912 - a case for each type
    r"""Return the bytes of a value that are hashed.

    =============================================  ==========================================================
    Value                                          Bytes
    =============================================  ==========================================================
    text                                           UTF-8
    bytes                                          unchanged
    integers from -2**63 to 2**64 - 1              8 bytes, little-endian, in two's complement
    other integers                                 the fewest bytes in two's complement, little-endian
    True and False                                 as 1 and 0
    floats of any width                            as integers if they are whole and within 64 signed bits
                                                   (also -0.0), else 8 bytes of a little-endian float64;
                                                   all NaN as ``0x7ff8000000000000``
    decimals                                       as floats if they are equal to one, as integers of up to 20
                                                   digits, else text such as ``1e-1`` for 0.1
    None, NaT                                      ``\xff`` ``null``
    dates and times, naive ones as UTC             ``\xff`` ``t``, and nanoseconds since 1970 in 16 bytes
    times of day                                   ``\xff`` ``c``, and nanoseconds since midnight in 16 bytes
    durations                                      ``\xff`` ``d``, and nanoseconds in 16 bytes
    lists, tuples, and arrays as nested lists      ``\xff`` ``[``, and for each item the number of its bytes
                                                   in 8 bytes, and its bytes
    dicts                                          ``\xff`` ``{``, and keys and values as in lists, ordered
                                                   by the bytes of the keys
    =============================================  ==========================================================

    NumPy's scalars and arrays without dimensions are as Python's values. All integers are little-endian.

    Raises:
        TypeError: If a value is of another type.
        ValueError: If a time is finer than nanoseconds.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (np.datetime64, np.timedelta64)):  # the latter are integers, too
        return _numpy_time_bytes(value)
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return _integer_bytes(int(value))
    if isinstance(value, (float, np.float16, np.float32)):
        return _float_bytes(float(value))
    if value is None:
        return _MISSING
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (date, time, timedelta)):
        return _python_time_bytes(value)
    if isinstance(value, Decimal):
        return _decimal_bytes(value)
    if isinstance(value, np.ndarray):
        return _array_bytes(value)
    if isinstance(value, (list, tuple)):
        return _MARK + b"[" + _with_sizes(map(hashed_bytes, value))
    if isinstance(value, dict):
        pairs = sorted((hashed_bytes(key), hashed_bytes(item)) for key, item in value.items())
        return _MARK + b"{" + _with_sizes(part for pair in pairs for part in pair)
    raise TypeError(
        f"xxh64 hashes text, bytes, numbers, times, None, and lists, dicts and arrays of these, no "
        f"{type(value).__module__}.{type(value).__qualname__}"
    )


def _with_sizes(parts: Iterable[bytes]) -> bytes:
    return b"".join(piece for part in parts for piece in (struct.pack("<Q", len(part)), part))


def _integer_bytes(value: int) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return struct.pack("<q", value)
    if 0 < value < 1 << 64:
        return struct.pack("<Q", value)
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _float_bytes(value: float) -> bytes:
    if value != value:  # noqa: PLR0124 - NaN
        return _NAN
    if value.is_integer() and -(2.0**63) <= value < 2.0**63:
        return _integer_bytes(int(value))
    return struct.pack("<d", value)


def _decimal_bytes(value: Decimal) -> bytes:
    if value.is_nan():
        return _NAN
    if float(value) == value:
        return _float_bytes(float(value))
    if value.adjusted() < _MAX_DECIMAL_DIGITS and value == value.to_integral_value():
        return _integer_bytes(int(value))
    sign, digits, exponent = value.as_tuple()
    kept = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{kept}e{int(exponent) + len(digits) - len(kept)}".encode()


def _time_bytes(mark: bytes, nanoseconds: int) -> bytes:
    return _MARK + mark + nanoseconds.to_bytes(16, "little", signed=True)


def _numpy_time_bytes(value: np.datetime64 | np.timedelta64) -> bytes:
    if np.isnat(value):
        return _MISSING
    unit, count = np.datetime_data(value.dtype)
    if isinstance(value, np.datetime64) and unit in ("Y", "M"):
        value, unit, count = value.astype("M8[D]"), "D", 1
    mark = b"t" if isinstance(value, np.datetime64) else b"d"
    attoseconds = int(value.astype(np.int64)) * count * _ATTOSECONDS.get(unit, 0)
    nanoseconds, rest = divmod(attoseconds, 10**9)
    if rest or unit not in _ATTOSECONDS:
        raise ValueError(
            f"xxh64: {value!r} is no whole number of nanoseconds; convert it to such a unit"
        )
    return _time_bytes(mark, nanoseconds)


def _python_time_bytes(value: date | time | timedelta) -> bytes:
    if isinstance(value, timedelta):
        return _time_bytes(b"d", value // _MICROSECOND * 1000)
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise TypeError("xxh64 hashes times of day without a zone")
        of_day = timedelta(
            0, value.hour * 3600 + value.minute * 60 + value.second, value.microsecond
        )
        return _time_bytes(b"c", of_day // _MICROSECOND * 1000)
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    elif value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return _time_bytes(b"t", (value - _EPOCH) // _MICROSECOND * 1000)


def _array_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of nested lists; numbers without a loop over them."""
    if array.ndim == 0:
        return hashed_bytes(array[()])
    is_small_float = array.dtype.kind == "f" and array.dtype.itemsize <= 8
    if array.ndim > 1 or not (array.dtype.kind in "biu" or is_small_float):
        return _MARK + b"[" + _with_sizes(map(hashed_bytes, array))
    items = np.empty((len(array), 2), "<u8")
    items[:, 0] = 8
    if not is_small_float:
        items[:, 1] = array.astype("<u8" if array.dtype.kind == "u" else "<i8").view("<u8")
    else:
        floats = array.astype("<f8")
        floats[np.isnan(floats)] = np.frombuffer(_NAN, "<f8")[0]
        is_whole = (floats == np.trunc(floats)) & (floats >= -(2.0**63)) & (floats < 2.0**63)
        items[:, 1] = floats.view("<u8")
        items[is_whole, 1] = floats[is_whole].astype("<i8").view("<u8")
    return _MARK + b"[" + items.tobytes()
