"""The encodings of single values: bytes, text, numbers, JSON and pickles."""

from __future__ import annotations

import pickle
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st
from streamplug_testing.encoding import EncodingTests

from streamplug.errors import DecodeError, EncodeError, EncodeTypeError
from streamplug.interfaces import GatherBuffer
from streamplug.plugin import make

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


class TestBytes(EncodingTests):
    spec = "bytes"
    wrong = ("text", 5, None, [1], np.zeros(3, np.uint8))
    golden = ((b"", ""), (b"\0\xffA", "00ff41"))

    def values(self):
        return st.binary(max_size=50)

    @pytest.mark.parametrize("kind", [bytearray, memoryview])
    def test_takes_other_buffers(self, kind):
        encoding = make("encoding", "bytes")
        assert encoding.encode(kind(b"abc")) == b"abc"
        assert type(encoding.encode(kind(b"abc"))) is bytes


class TestStr(EncodingTests):
    spec = "str"
    wrong = (b"bytes", 5, None, ["a"])
    refused = ("\ud800",)
    golden = (("", ""), ("naïve €𝄞\0", "6e61c3af766520e282acf09d849e00"))

    def values(self):
        return TEXT

    @pytest.mark.parametrize("data", [b"\xff", b"ok\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80"])
    def test_text_that_is_not_utf8_is_refused(self, data):
        encoding = make("encoding", "str")
        with pytest.raises(DecodeError, match="not UTF-8"):
            encoding.decode(memoryview(data))
        with pytest.raises(DecodeError, match="not UTF-8"):
            encoding.decode_batch(
                GatherBuffer(np.frombuffer(data, np.uint8)), np.array([0]), np.array([len(data)])
            )

    @pytest.mark.parametrize(
        "texts",
        [
            ["a", "", "bc"],
            ["", ""],
            ["naïve", "€𝄞", "plain"],
            ["with a \0", "none", "\0", ""],
            ["long " * 40, "short"],
            [],
        ],
    )
    def test_texts_are_decoded_together_as_one_by_one(self, texts):
        stored = [text.encode() for text in texts]
        sizes = np.array([len(each) for each in stored], np.int64)
        buffer = GatherBuffer(np.frombuffer(b"".join(stored), np.uint8))
        decode = make("encoding", "str").decode_batch
        assert decode(buffer, np.cumsum(sizes) - sizes, sizes) == texts

    def test_texts_cut_inside_of_a_character_are_refused_together(self):
        buffer = GatherBuffer(np.frombuffer("€€".encode(), np.uint8))
        with pytest.raises(DecodeError, match="not UTF-8"):
            make("encoding", "str").decode_batch(buffer, np.array([0, 2]), np.array([2, 4]))


class Unprintable:
    def __repr__(self):
        raise RuntimeError


class Integers(EncodingTests):
    wrong = (1.0, np.float32(1), "1", b"1", b"12345678", None, [1], Decimal(1), 1j, Unprintable())
    refused = (10**5000, -(10**5000))  # beyond what has a repr

    def values(self):
        info = np.iinfo(self.spec)
        plain = st.integers(int(info.min), int(info.max))
        return plain | plain.map(np.dtype(self.spec).type) | st.booleans() | st.just(np.True_)

    def decoded(self, value):
        return np.dtype(self.spec).type(value)

    def test_integers_out_of_range_are_refused(self):
        encoding = make("encoding", self.spec)
        info = np.iinfo(encoding.dtype)
        for value in (int(info.min) - 1, int(info.max) + 1, 1 << 100, -(1 << 100)):
            with pytest.raises(EncodeError, match=rf"takes {info.min} to {info.max}, got {value}"):
                encoding.encode(value)
            with pytest.raises(EncodeError, match=rf"got {value}"):
                encoding.encode_batch([0, value, 1])

    @pytest.mark.parametrize("kind", ["i1", "u1", "<i8", ">i8", "u8", "?"])
    def test_batch_may_be_an_array_of_any_integers(self, kind):
        encoding = make("encoding", self.spec)
        array = np.array([0, 1, 1, 0, 1], kind)[::-2]
        joined = b"".join(encoding.encode(int(value)) for value in (1, 1, 0))
        assert encoding.encode_batch(array).tobytes() == joined

    def test_array_with_an_integer_out_of_range_is_refused(self):
        encoding = make("encoding", self.spec)
        extreme = np.array([0, 2**64 - 1], np.uint64)
        if self.spec == "uint64":
            extreme = np.array([0, -1])
        with pytest.raises(EncodeError, match=f"got .*{extreme[1]}"):
            encoding.encode_batch(extreme)

    @pytest.mark.parametrize("values", [np.zeros(2), np.zeros((2, 1), int), [0, [1]], [0.5], ["1"]])
    def test_batch_of_something_else_is_refused(self, values):
        with pytest.raises(EncodeTypeError):
            make("encoding", self.spec).encode_batch(values)


@pytest.mark.parametrize("spec", ["int", "int8", "uint16", "float16", "float64"])
def test_masked_values_are_refused(spec):
    encoding, masked = make("encoding", spec), np.ma.array([1, 2], mask=[False, True])
    with pytest.raises(EncodeTypeError, match="got MaskedConstant"):
        encoding.encode_batch(masked)
    stored = b"".join(encoding.encode_batch(masked[:1]))
    assert stored == encoding.encode(1)


class TestInt(Integers):
    spec = "int"
    golden = (
        (0, "0000000000000000"),
        (True, "0100000000000000"),
        (-2, "feffffffffffffff"),
        (1 << 40, "0000000000010000"),
        (np.int16(258), "0201000000000000"),
        (-(1 << 63), "0000000000000080"),
    )

    def decoded(self, value):
        return int(value)


class TestInt8(Integers):
    spec = "int8"
    golden = ((-128, "80"), (127, "7f"))


class TestInt16(Integers):
    spec = "int16"
    golden = ((-2, "feff"), (258, "0201"))


class TestInt32(Integers):
    spec = "int32"
    golden = ((-2, "feffffff"), (np.int64(16909060), "04030201"))


class TestInt64(Integers):
    spec = "int64"
    golden = ((-2, "feffffffffffffff"), ((1 << 63) - 1, "ffffffffffffff7f"))


class TestUInt8(Integers):
    spec = "uint8"
    golden = ((0, "00"), (255, "ff"))


class TestUInt16(Integers):
    spec = "uint16"
    golden = ((258, "0201"), (65535, "ffff"))


class TestUInt32(Integers):
    spec = "uint32"
    golden = ((16909060, "04030201"), ((1 << 32) - 1, "ffffffff"))


class TestUInt64(Integers):
    spec = "uint64"
    golden = ((1, "0100000000000000"), ((1 << 64) - 1, "ffffffffffffffff"))


class Floats(EncodingTests):
    wrong = (
        *("1", b"1", None, [1.0], 1j, np.complex64(1), np.ones(1), Decimal(1), Fraction(1)),
        *(np.timedelta64(1, "s"), np.timedelta64("NaT"), np.datetime64(1, "s")),
    )
    refused = (10**400, 10**5000)

    def values(self):
        limit = float(np.finfo(self.spec).max)
        single, whole = (
            min(limit, float(np.finfo("float32").max)),
            int(min(limit, (1 << 63) - 1024)),
        )
        return (
            st.floats(-limit, limit)
            | st.sampled_from([float("inf"), float("-inf"), float("nan"), np.float32("inf")])
            | st.floats(-single, single, width=32).map(np.float32)
            | st.floats(width=16).map(np.float16)
            | st.integers(-whole, whole)
            | st.integers(-whole, whole).map(np.int64)
            | st.integers(0, whole).map(np.uint64)
            | st.booleans()
        )

    def decoded(self, value):
        with np.errstate(all="ignore"):
            return np.dtype(self.spec).type(value)

    def equal(self, a, b):
        return type(a) is type(b) and repr(a) == repr(b)

    def test_batch_may_be_an_array_of_any_numbers(self):
        encoding = make("encoding", self.spec)
        for kind in ("<f2", ">f4", "<f8", "i1", "?"):
            joined = encoding.encode(1.0) + encoding.encode(0.0)
            assert encoding.encode_batch(np.array([0, 5, 1], kind)[::-2] > 0).tobytes() == joined

    @pytest.mark.parametrize(
        "values",
        [
            *(np.zeros(2, complex), np.zeros((2, 1)), [0, [1]], ["1"], [1.0, None], [10**400]),
            *([1.0, np.timedelta64(1, "s")], np.array([1, 2], "m8[ns]"), np.array([1], "M8[ns]")),
        ],
    )
    def test_batch_of_something_else_is_refused(self, values):
        with pytest.raises(EncodeError):
            make("encoding", self.spec).encode_batch(values)

    def test_what_does_not_fit_is_refused(self):
        encoding = make("encoding", self.spec)
        limit = np.finfo(encoding.dtype).max
        exponent = {"float16": 16, "float32": 128, "float64": 1024}[self.spec]
        too_large = [2**exponent, -(10**400)]
        if np.finfo(np.longdouble).max > limit:
            too_large.append(np.longdouble(limit) * 4)
        if self.spec != "float64":
            too_large += [2.0**exponent, np.float64(-(2.0**exponent)), float(limit) * (1 + 1e-3)]
        too_large += [np.float32(65520), np.int32(65520)] if self.spec == "float16" else []
        for value in too_large:
            for given in ([value], [1.0, np.inf, value], np.array([value])):
                with pytest.raises(EncodeError, match=rf"{self.spec} takes -.*got .*; clip it"):
                    encoding.encode_batch(given)
            with pytest.raises(EncodeError, match=rf"{self.spec} takes -.* to .* and infinities"):
                encoding.encode(value)

    def test_what_is_rounded_to_the_largest_number_is_stored(self):
        encoding = make("encoding", self.spec)
        limit = np.finfo(encoding.dtype).max
        largest = limit.tobytes()
        value = np.longdouble(limit) + (np.longdouble(limit) - np.nextafter(limit, 0)) / 4
        assert encoding.encode(value) == largest
        assert bytes(encoding.encode_batch(np.array([value]))) == largest

    def test_infinities_stay(self):
        encoding, values = make("encoding", self.spec), [np.inf, 1.0, -np.inf, np.nan]
        expected = np.array(values, self.spec).tobytes()
        joined = [*values[:2], np.float32(values[2]), values[3]]
        for given in (values, np.array(values), np.array(values, np.float32), joined):
            stored = encoding.encode_batch(given)
            assert (b"".join(stored) if isinstance(stored, list) else bytes(stored)) == expected
            assert b"".join(map(encoding.encode, given)) == expected


class TestFloat16(Floats):
    spec = "float16"
    golden = ((1.5, "003e"), (-0.0, "0080"), (float("inf"), "007c"), (1, "003c"))


class TestFloat32(Floats):
    spec = "float32"
    golden = (
        (1.5, "0000c03f"),
        (0.1, "cdcccc3d"),
        (float("-inf"), "000080ff"),
        (np.float16(2), "00000040"),
    )


class TestFloat64(Floats):
    spec = "float64"
    golden = ((1.5, "000000000000f83f"), (0.1, "9a9999999999b93f"), (True, "000000000000f03f"))


SCALARS = ("int", "int8", "uint8", "int64", "float16", "float32", "float64", "str_int", "str_float")


@pytest.mark.parametrize("spec", SCALARS)
@pytest.mark.parametrize(
    "value",
    [
        *(3, np.uint8(3), np.int64(3), np.array(3), np.array(3, np.uint8), np.array(3, object)),
        *(True, np.True_, np.array(True)),
    ],
    ids=repr,
)
def test_all_scalars_take_integers_of_any_kind(spec, value):
    encoding = make("encoding", spec)
    number = 1 if np.asarray(value).dtype == bool else 3
    assert encoding.decode(memoryview(encoding.encode(value))) == number
    assert encoding.encode(value) == encoding.encode(number)


@pytest.mark.parametrize("spec", [spec for spec in SCALARS if "float" in spec])
@pytest.mark.parametrize("value", [1.5, np.float16(1.5), np.float64(1.5), np.array(1.5, "f4")])
def test_all_floats_take_real_numbers_of_any_kind(spec, value):
    encoding = make("encoding", spec)
    assert encoding.encode(value) == encoding.encode(1.5)
    assert encoding.decode(memoryview(encoding.encode(value))) == 1.5


@pytest.mark.parametrize("spec", SCALARS)
@pytest.mark.parametrize(
    "value",
    [np.ones(1, int), np.ones((1, 1)), np.ma.masked, np.ma.masked_array(3), np.array("3")],
    ids=repr,
)
def test_no_scalar_takes_arrays_that_are_none(spec, value):
    with pytest.raises(EncodeTypeError, match=r"takes an? "):
        make("encoding", spec).encode(value)


class TestStrInt(EncodingTests):
    spec = "str_int"
    wrong = (1.0, "1", b"1", None, Decimal(1), np.timedelta64(1, "ns"))
    refused = (10 ** (sys.get_int_max_str_digits() or 1),) if sys.get_int_max_str_digits() else ()
    golden = ((0, "30"), (-12, "2d3132"), (10**30, "31" + "30" * 30), (np.int8(7), "37"))

    def values(self):
        return st.integers() | st.integers(0, 255).map(np.uint8) | st.booleans()

    def decoded(self, value):
        return int(value)

    @pytest.mark.parametrize("data", [b"", b"x", b"1.5", b"True", b"\xff", b"9" * 5000])
    def test_text_that_is_not_an_integer_is_refused(self, data):
        with pytest.raises(DecodeError, match="not int as text"):
            make("encoding", "str_int").decode(memoryview(data))


class TestStrFloat(EncodingTests):
    spec = "str_float"
    wrong = ("1.5", b"1.5", None, Decimal("1.5"), 1j, np.timedelta64(1, "ns"))
    refused = (10**400, -(10**5000))
    golden = (
        (0.1, "302e31"),
        (-0.0, "2d302e30"),
        (1e16, "31652b3136"),
        (1e-05, "31652d3035"),
        (float("nan"), "6e616e"),
        (np.float64(0.5), "302e35"),
        (np.float32(0.1), "302e31303030303030303134393031313631" + "32"),
        (3, "332e30"),
        (True, "312e30"),
        (np.float64(1e22), "31652b3232"),
    )

    def values(self):
        return st.floats() | st.floats().map(np.float64)

    def decoded(self, value):
        return float(value)


class TestStrDecimal(EncodingTests):
    spec = "str_decimal"
    wrong = (1, 1.5, "1.5", b"1.5", None)
    golden = (
        (Decimal("1.50"), "312e3530"),
        (Decimal("-0E+7"), "2d30452b37"),
        (Decimal("NaN"), "4e614e"),
    )

    def values(self):
        return st.decimals()

    def equal(self, a, b):
        return type(a) is type(b) and str(a) == str(b)

    def test_text_that_is_not_a_number_is_refused(self):
        with pytest.raises(DecodeError, match="not Decimal as text: b'1,5'"):
            make("encoding", "str_decimal").decode(memoryview(b"1,5"))


class TestJson(EncodingTests):
    spec = "json"
    wrong = (
        b"bytes", {1, 2}, 1j, object(), np.datetime64("2024-01-01"), np.timedelta64(1, "s"),
        np.array(["2024-01-01"], "M8[ns]"), np.array([1], "m8[ns]"), np.zeros(2, [("t", "M8[ns]")]),
    )  # fmt: skip
    refused = (
        {"deep": [object()]}, {(1, 2): 3}, np.array([1j]),
        {1: "a", "1": "b"}, {True: 1, "true": 2}, {None: 1, "null": 2}, {"-1.5e+20": 1, -1.5e20: 2},
        {float("nan"): 1, float("-nan"): 2}, [({"deep": {"x": 1, "0": 2, 0: 3}},)],
        np.array([{float("-inf"): 1, "-Infinity": 2}], object),
    )  # fmt: skip
    golden = (
        (
            {"a": [1, 2.5, None, True], "é": "€"},
            b'{"a": [1, 2.5, null, true], "\\u00e9": "\\u20ac"}'.hex(),
        ),
        (float("nan"), b"NaN".hex()),
        ([float("inf"), -0.0, 10**20], b"[Infinity, -0.0, 100000000000000000000]".hex()),
    )

    def values(self):
        return PLAIN

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (np.array([[1, 2], [3, 4]], np.uint8), "[[1, 2], [3, 4]]"),
            ({"a": np.float32(0.1), "b": np.int8(3)}, '{"a": 0.10000000149011612, "b": 3}'),
            ([np.bool_(True), np.float64(0.1), np.longdouble(2)], "[true, 0.1, 2.0]"),
            ({1: (2, 3), None: True}, '{"1": [2, 3], "null": true}'),
            (
                [{"1": 2}, {1: 2}, {'"1": ': 1, 1: 2}],
                r'[{"1": 2}, {"1": 2}, {"\"1\": ": 1, "1": 2}]',
            ),
        ],
    )
    def test_numpy_and_python_become_plain(self, value, text):
        assert make("encoding", "json").encode(value) == text.encode()

    def test_endless_values_are_refused(self):
        endless = []
        endless.append(endless)
        with pytest.raises(EncodeError, match="Circular reference"):
            make("encoding", "json").encode(endless)

    @pytest.mark.parametrize("data", [b"", b"{", b"[1,]", b"\xff", b"[" * 100_000, b"1 2"])
    def test_text_that_is_not_json_is_refused(self, data):
        with pytest.raises(DecodeError, match="not JSON"):
            make("encoding", "json").decode(memoryview(data))


@pytest.mark.parametrize("value", [{1: 2, "1": 3}, [{True: 0, "true": 1}]])
def test_errors_of_json_name_it_once(value):
    with pytest.raises(EncodeError) as caught:
        make("encoding", "json").encode(value)
    assert str(caught.value).startswith("json: the keys ")


class Local:
    def __reduce__(self):
        raise ZeroDivisionError("will not")


class TestPickle(EncodingTests):
    spec = "pkl"
    wrong = (lambda: None, Local(), sys)
    golden = (
        (
            {"a": (1, b"x")},
            f"80{pickle.DEFAULT_PROTOCOL:02x}9510000000000000007d948c0161944b01430178948694732e",
        ),
    )

    def values(self):
        return PLAIN | st.binary() | st.tuples(PLAIN, PLAIN)

    def test_it_is_the_only_unsafe_one(self):
        assert make("encoding", "pkl").unsafe
        assert not make("encoding", "json").unsafe

    def test_bytes_that_are_not_a_pickle_are_refused(self):
        with pytest.raises(DecodeError, match="not a pickle"):
            make("encoding", "pkl").decode(memoryview(b"x"))
