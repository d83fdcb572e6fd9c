"""Hashes that never change: the hashed bytes and the hashes of values of all types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_tools import xxh64
from streamplug_tools.value_hash import hashed_bytes

NAN = float("nan")
DICT = "01000000000000006208000000000000000100000000000000"


@pytest.mark.parametrize(
    ("value", "data", "hashed"),
    [
        ("", "", 17241709254077376921),
        ("https://example.com/7", b"https://example.com/7".hex(), 17105686940569819510),
        ("é", "c3a9", 1717938401253289848),
        (b"\x00\xff", "00ff", 16202119234872089981),
        (0, "0000000000000000", 3803688792395291579),
        (-1, "ffffffffffffffff", 9642548396912002761),
        (7, "0700000000000000", 609900476111905877),
        (2**63, "0000000000000080", 4558309869707674848),
        (-(2**63), "0000000000000080", 4558309869707674848),
        (2**64, "000000000000000001", 14123694239820124332),
        (-(2**63) - 1, "ffffffffffffff7fff", 12511780495452864039),
        (0.5, "000000000000e03f", 5245389620263901762),
        (1e300, "9c7500883ce4377e", 11016503143049590244),
        (NAN, "000000000000f87f", 16838308782748609196),
        (float("inf"), "000000000000f07f", 18031741628920313605),
        (Decimal("0.10"), b"1e-1".hex(), 17224789250443412428),
        (Decimal("1e400"), b"1e400".hex(), 14455400820592321408),
        (None, "ff6e756c6c", 11961014039196116869),
        (dt.date(2024, 1, 31), "ff740000a7088045af170000000000000000", 17812992601314095748),
        (dt.time(1, 2, 3, 4), "ff63a0bd17d4620300000000000000000000", 14902334419507712859),
        (dt.timedelta(-1), "ff640000b16e6bb1ffffffffffffffffffff", 10445677849654511945),
        (
            [1, "a", None],
            "ff5b080000000000000001000000000000000100000000000000610500000000000000ff6e756c6c",
            2854005906121330112,
        ),
        ([], "ff5b", 11158951247925415193),
        (
            {"b": 1, "a": [0.5]},
            f"ff7b0100000000000000611200000000000000ff5b0800000000000000000000000000e03f{DICT}",
            9287399788672014087,
        ),
    ],
)
def test_bytes_and_hashes_never_change(value, data, hashed):
    assert hashed_bytes(value).hex() == data
    assert xxh64(value) == hashed


def test_a_seed_gives_another_hash():
    assert xxh64("a", 5) == xxh64("a", seed=5) == 5861026382062077246
    for seed in (-1, 2**64, 1.0, True, "5"):
        with pytest.raises(ValueError, match=r"xxh64: seed=.*expected a whole number"):
            xxh64("a", seed)


AWARE = dt.datetime(2024, 1, 31, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
ALIKE = {
    "numbers": [
        1, True, 1.0, np.bool_(True), np.int8(1), np.uint64(1), np.float16(1), np.float32(1),
        np.float64(1), Decimal("1.00"), np.array(1, ">i4"), np.array(1.0, "<f4"),
    ],
    "zeros": [0, 0.0, -0.0, False, np.float32(-0.0), Decimal("-0"), np.array(-0.0)],
    "fractions": [0.5, np.float16(0.5), np.float32(0.5), Decimal("0.50"), np.array(0.5, ">f8")],
    "NaN": [NAN, -NAN, np.float32("nan"), np.float16("nan"), Decimal("nan"), Decimal("sNaN")],
    "large": [2**64 - 1, np.uint64(2**64 - 1), Decimal(2**64 - 1)],
    "text": ["a", np.str_("a"), b"a", bytearray(b"a"), memoryview(b"a"), np.bytes_(b"a")],
    "missing": [None, np.datetime64("NaT"), np.timedelta64("NaT", "s")],
    "times": [
        dt.date(2024, 1, 31), dt.datetime(2024, 1, 31), AWARE,  # noqa: DTZ001 - naive ones are UTC
        *(np.datetime64("2024-01-31", unit) for unit in ("D", "h", "m", "s", "ms", "us", "ns")),
    ],
    "months": [np.datetime64("2024-01"), np.datetime64("2024"), dt.date(2024, 1, 1)],
    "durations": [dt.timedelta(7), np.timedelta64(1, "W"), np.timedelta64(7 * 86_400 * 10**9, "ns")],
    "lists": [
        [1, 2.5, NAN], (1, 2.5, NAN), np.array([1, 2.5, NAN]), np.array([1, 2.5, NAN], ">f4"),
        [np.int8(1), Decimal("2.5"), NAN], np.array([0, 1, 0, 2.5, 0, NAN])[1::2],
    ],
    "integers": [[-1, 300], *(np.array([-1, 300], f"{end}i{n}") for end in "<>" for n in (2, 4, 8))],
    "unsigned": [[2**64 - 1, 1], np.array([2**64 - 1, 1], ">u8")],
    "flags": [[1, 0], [True, False], np.array([True, False])],
    "nested": [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], "i1"), [np.array([1, 2]), (3, 4.0)]],
    "texts": [["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], object)],
    "days": [[dt.date(2024, 1, 31)], np.array(["2024-01-31"], "M8[ns]")],
    "dicts": [{"a": 1, "b": 2}, {"b": 2.0, "a": np.int16(1)}],
}  # fmt: skip


@pytest.mark.parametrize("values", ALIKE.values(), ids=ALIKE.keys())
def test_equal_values_have_equal_hashes_whatever_their_type_and_byte_order(values):
    assert {xxh64(value) for value in values} == {xxh64(values[0])}


def test_other_values_have_other_hashes():
    others = [values[0] for values in ALIKE.values()]
    others += ["", [], [[]], {}, [None], "null", ["ab"], [1, "a"], 2, -2, "1", np.float32(0.1), 0.1]
    assert len({xxh64(value) for value in others}) == len(others)


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.floats(width=16), st.booleans()
)


@given(st.lists(NUMBERS, min_size=1))
def test_arrays_are_hashed_like_lists(values):
    array = np.array(values)
    assert xxh64(array) == xxh64(array.tolist()) == xxh64(list(array)) == xxh64(array[::-1][::-1])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"a"}, TypeError, "no builtins.set"),
        (frozenset(), TypeError, "no builtins.frozenset"),
        (object(), TypeError, "no builtins.object"),
        ([1, object()], TypeError, "no builtins.object"),
        (1j, TypeError, "no builtins.complex"),
        (np.array([1j]), TypeError, "no numpy.complex128"),
        (np.zeros(1, "i4,f4"), TypeError, "no numpy.void"),
        ((n for n in range(3)), TypeError, "no builtins.generator"),
        (len, TypeError, "no builtins.builtin_function_or_method"),
        (dt.time(1, tzinfo=dt.timezone.utc), TypeError, "times of day without a zone"),
        (np.datetime64(1, "ps"), ValueError, "no whole number of nanoseconds"),
        (np.timedelta64(1, "M"), ValueError, "no whole number of nanoseconds"),
        (np.timedelta64(1), ValueError, "no whole number of nanoseconds"),
    ],
)
def test_what_has_no_bytes_is_refused(value, error, message):
    with pytest.raises(error, match=message):
        xxh64(value)
