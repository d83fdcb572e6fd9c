"""A correct encoding passes all conformance tests; each broken one fails the test that is for it."""

from __future__ import annotations

import pickle
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from streamplug_testing import encoding as kit
from streamplug_testing.encoding import EncodingTests
from streamplug_testing.equality import same

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces.encoding import Encoding, VectorColumn
from streamplug.plugin_kit.codec_errors import wrong_type_error


class Text(Encoding):
    """A number of bytes, then text."""

    def encode(self, value):
        if not isinstance(value, str):
            raise wrong_type_error("text", "a str", value)
        if "!" in value:
            raise EncodeError("no exclamations")
        data = value.encode()
        return struct.pack("<I", len(data)) + data

    def decode(self, data):
        (size,) = struct.unpack_from("<I", data)
        if size != len(data) - 4:
            raise DecodeError("truncated")
        return str(data[4:], "utf-8")


class Pairs(Encoding):
    """Two int16."""

    dtype = np.dtype(("<i2", (2,)))
    size = 4

    def encode(self, value):
        if not isinstance(value, np.ndarray):
            raise wrong_type_error("pairs", "an array", value)
        if value.shape != (2,):
            raise EncodeError("not a pair")
        return value.astype("<i2").tobytes()

    def encode_batch(self, values):
        if not isinstance(values, np.ndarray):
            return super().encode_batch(values)
        if values.shape[1:] != (2,):
            raise EncodeError("not pairs")
        return values.astype("<i2").reshape(-1).view(np.uint8)

    def decode(self, data):
        if len(data) != 4:
            raise DecodeError("not four bytes")
        return np.frombuffer(data, "<i2").copy()


class Small(Encoding):
    """An uint8."""

    dtype = np.dtype("u1")
    size = 1

    def encode(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise wrong_type_error("small", "an int", value)
        if not 0 <= value < 256:
            raise EncodeError("out of range")
        return bytes([int(value)])

    def decode(self, data):
        (number,) = data
        return np.uint8(number)


class Vector(Encoding, VectorColumn):
    """Some uint16 after their number."""

    item = np.dtype("<u2")

    def encode(self, value):
        if not isinstance(value, np.ndarray):
            raise wrong_type_error("vector", "an array", value)
        return bytes([len(value)]) + value.astype("<u2").tobytes()

    def decode(self, data):
        if len(data) != 1 + 2 * data[0]:
            raise DecodeError("truncated")
        return np.frombuffer(data[1:], "<u2").copy()

    def lengths(self, sizes, dtype):
        return (sizes - 1) // dtype.itemsize


class TextTests(EncodingTests):
    cls = Text
    wrong = (1, b"bytes")
    refused = ("no!",)
    golden = (("é", "02000000c3a9"), (lambda: "", "00000000"))

    def values(self):
        return st.text("abcé", max_size=5)


class PairsTests(EncodingTests):
    cls = Pairs
    wrong = (1, [1, 2])
    refused = (np.zeros(3, np.int16),)
    golden = ((np.array([1, -1], np.int16), "0100ffff"),)

    def values(self):
        numbers = st.integers(-(1 << 15), (1 << 15) - 1)
        return st.tuples(numbers, numbers).map(lambda pair: np.array(pair, np.int16))


class SmallTests(EncodingTests):
    cls = Small
    wrong = ("x", 1.5)

    def values(self):
        return st.integers(0, 255)

    def decoded(self, value):
        return np.uint8(value)


class VectorTests(EncodingTests):
    cls = Vector
    wrong = ("x",)

    def values(self):
        numbers = st.lists(st.integers(0, 65_535), max_size=5)
        return numbers.map(lambda items: np.array(items, "<u2"))


class TestText(TextTests):
    pass


class TestSmall(SmallTests):
    pass


class TestVector(VectorTests):
    pass


class TestPairs(PairsTests):
    pass


class Forgets(Text):
    def decode(self, data):
        return super().decode(data).rstrip("c")


class GivesBytearray(Text):
    def encode(self, value):
        return bytearray(super().encode(value))


class Varies(Text):
    times = 0

    def encode(self, value):
        self.times += 1
        return super().encode(value + "a" * (self.times % 2))


class LooksBeyond(Text):
    def decode(self, data):
        return super().decode(memoryview(data.obj))


class HasOtherSize(Pairs):
    def encode(self, value):
        return super().encode(value) + b"\0"


class KeepsView(Pairs):
    def decode(self, data):
        if len(data) != 4:
            raise DecodeError("not four bytes")
        return np.frombuffer(data, "<i2")


class KeepsViewOfBatch(Pairs):
    def decode_batch(self, buffer, starts, sizes):
        if len(starts) != 1:
            return super().decode_batch(buffer, starts, sizes)
        return np.frombuffer(buffer.slices(starts, sizes)[0], "<i2").reshape(1, 2)


class WritesToBuffer(Pairs):
    def decode_batch(self, buffer, starts, sizes):
        for data in buffer.slices(starts, sizes):
            data[0] = 0
        return super().decode_batch(buffer, starts, sizes)


class SortsBatch(Text):
    def decode_batch(self, buffer, starts, sizes):
        order = np.argsort(starts)
        return super().decode_batch(buffer, starts[order], sizes[order])


class FailsOnEmptyBatch(Pairs):
    def decode_batch(self, buffer, starts, sizes):
        return np.stack([self.decode(data) for data in buffer.slices(starts, sizes)])


class SplitsIntoLists(Pairs):
    def unbatch(self, batch):
        return batch.tolist()


class GivesOtherDtype(Pairs):
    def decode_batch(self, buffer, starts, sizes):
        return super().decode_batch(buffer, starts, sizes).astype(np.int32)

    def unbatch(self, batch):
        return batch.astype(np.int16)


class ReadsBeyondBuffer(Text):
    def decode_batch(self, buffer, starts, sizes):
        begins, ends = np.clip([starts, starts + sizes], 0, len(buffer))
        return [str(data[4:], "utf-8") for data in buffer.slices(begins, ends - begins)]


class BatchIsBigEndian(Pairs):
    def encode_batch(self, values):
        return np.asarray(values, ">i2").reshape(-1).view(np.uint8)


class BatchIsTheInput(Pairs):
    def encode_batch(self, values):
        if not isinstance(values, np.ndarray):
            return super().encode_batch(values)
        return values.reshape(-1).view(np.uint8)


class BatchOfBytearrays(Text):
    def encode_batch(self, values):
        return [bytearray(value) for value in super().encode_batch(values)]


class TakesAnything(Text):
    def encode(self, value):
        return super().encode(str(value))


class BatchTakesAnything(Text):
    def encode_batch(self, values):
        return [self.encode(str(value)) for value in values]


class RaisesTypeError(Text):
    def encode(self, value):
        if not isinstance(value, str):
            raise TypeError(f"got {type(value).__name__}")
        return super().encode(value)


class NamesNoType(Text):
    def encode(self, value):
        if not isinstance(value, str):
            raise wrong_type_error("text", "a str", None)
        return super().encode(value)


class TakesExclamations(Text):
    def encode(self, value):
        return super().encode(value.replace("!", "") if isinstance(value, str) else value)


class TakesAnyLength(Pairs):
    def decode(self, data):
        return np.frombuffer(bytes(data).ljust(4, b"\0")[:4], "<i2").copy()


class BelievesTheData(Text):
    def decode(self, data):
        (size,) = struct.unpack_from("<I", data)
        text = bytearray(min(size, 1 << 26))
        text[:] = data[4 : 4 + size]
        return str(text, "utf-8")


class DoesNotPickle(Text):
    def __init__(self):
        self.lock = threading.Lock()


class ForgetsInPickle(Text):
    def __init__(self):
        self.suffix = "a"

    def __getstate__(self):
        return {"suffix": ""}

    def encode(self, value):
        return super().encode(value + self.suffix if isinstance(value, str) else value)

    def decode(self, data):
        return super().decode(data)[: -len("a")]


SECRET = time.monotonic_ns()
"""Differs between a process and one that it spawns."""


class DependsOnProcess(Text):
    def encode(self, value):
        return super().encode(value + str(SECRET))

    def decode(self, data):
        return super().decode(data)[: -len(str(SECRET))]


class MixesThreads(Text):
    text = ""

    def encode(self, value):
        self.text = value
        time.sleep(0.0001)
        return super().encode(self.text)


class TakesAnyArgument(Text):
    @classmethod
    def from_spec(cls, argument):
        return cls()


class DeclaresWrongSize(Pairs):
    size = 8


class WrapsArrays(Small):
    def encode_batch(self, values):
        if not isinstance(values, np.ndarray):
            return super().encode_batch(values)
        return values.astype("u1")


class RunsCode(Text):
    def decode(self, data):
        try:
            return super().decode(data)
        except DecodeError:
            return pickle.loads(data)


class CountsTheHeader(Vector):
    def lengths(self, sizes, dtype):
        return sizes // dtype.itemsize + 1


class SeesNoVectors(Vector):
    def are_vectors(self, buffer, starts, lengths, dtype):
        return np.zeros(len(starts), bool)


BROKEN = [
    (Forgets, "round_trip"),
    (GivesBytearray, "round_trip"),
    (Varies, "round_trip"),
    (LooksBeyond, "round_trip"),
    (HasOtherSize, "round_trip"),
    (KeepsView, "decoded_value_outlives_its_bytes"),
    (KeepsViewOfBatch, "batch_equals_single_values"),
    (WritesToBuffer, "batch_equals_single_values"),
    (SortsBatch, "batch_equals_single_values"),
    (FailsOnEmptyBatch, "batch_equals_single_values"),
    (SplitsIntoLists, "batch_equals_single_values"),
    (GivesOtherDtype, "batch_equals_single_values"),
    (ReadsBeyondBuffer, "values_outside_the_buffer_are_refused"),
    (BatchIsBigEndian, "encoded_batch_equals_single_values"),
    (BatchIsTheInput, "encoded_batch_equals_single_values"),
    (BatchOfBytearrays, "encoded_batch_equals_single_values"),
    (TakesAnything, "wrong_type_is_refused"),
    (BatchTakesAnything, "wrong_type_is_refused"),
    (RaisesTypeError, "wrong_type_is_refused"),
    (NamesNoType, "wrong_type_is_refused"),
    (TakesExclamations, "value_that_cannot_be_stored_is_refused"),
    (WrapsArrays, "value_that_cannot_be_stored_is_refused"),
    (RunsCode, "garbage_does_no_harm"),
    (CountsTheHeader, "values_in_a_buffer_equal_single_ones"),
    (SeesNoVectors, "values_in_a_buffer_equal_single_ones"),
    (TakesAnyLength, "wrong_length_is_refused"),
    (BelievesTheData, "garbage_does_no_harm"),
    (DoesNotPickle, "pickles"),
    (ForgetsInPickle, "pickles"),
    (MixesThreads, "serves_many_threads"),
    (TakesAnyArgument, "bad_argument_is_refused"),
    (DeclaresWrongSize, "size_is_that_of_the_dtype"),
]


def suite(encoding, **attributes):
    tests = {Text: TextTests, Small: SmallTests, Vector: VectorTests, Pairs: PairsTests}
    (base,) = (test for kind, test in tests.items() if issubclass(encoding, kind))
    return type("Suite", (base,), {"cls": encoding, **attributes})()


@pytest.mark.parametrize(
    ("encoding", "test"), BROKEN, ids=lambda item: getattr(item, "__name__", item)
)
def test_broken_encoding_fails(encoding, test, monkeypatch):
    # That it fails is enough: looking for the smallest value that makes it fail takes long.
    briefly = settings(kit._thorough, phases=[Phase.explicit, Phase.generate])
    monkeypatch.setattr(kit, "_thorough", briefly)
    with pytest.raises((Exception, pytest.fail.Exception)):
        getattr(suite(encoding), f"test_{test}")()


def test_encoding_that_depends_on_the_process_fails():
    with pytest.raises(AssertionError):
        suite(DependsOnProcess).test_works_in_another_process("spawn")


@pytest.mark.parametrize(
    "golden", [("é", "02000000c3a8"), ("è", "02000000c3a9")], ids=["stored", "value"]
)
def test_other_golden_bytes_fail(golden):
    with pytest.raises(AssertionError):
        suite(Text, golden=(golden,)).test_golden_bytes()


def test_values_must_be_given():
    with pytest.raises(NotImplementedError, match="Nothing must say which values"):
        type("Nothing", (EncodingTests,), {"cls": Text})().test_round_trip()


def test_spec_names_the_encoding():
    named = type("Named", (EncodingTests,), {"spec": "ndarray:int8:2"})()
    assert (named.encoding().size, type(named.encoding()).__name__) == (2, "NDArrayEncoding")


NAN = float("nan")


class Plain:
    """Has no ``==``."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers)


class Elementwise(Plain):
    """Has one that is neither true nor false, as SciPy's sparse arrays."""

    __hash__ = None

    def __eq__(self, other):
        return Plain(*(self.numbers == other.numbers))


class Unequal(Plain):
    __hash__ = None

    def __eq__(self, other):
        return False


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (Plain(1, 2), Plain(1, 2), True),
        (Plain(1, 2), Plain(1, 3), False),
        (Elementwise(1, NAN), Elementwise(1, NAN), True),
        (Elementwise(1, 2), Elementwise(1, 3), False),
        ([Elementwise(0.0)], [Elementwise(-0.0)], False),
        (Unequal(1), Unequal(1), False),
        (memoryview(b"a"), memoryview(b"b"), False),
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (NAN, -NAN, True),
        (0.0, -0.0, False),
        (np.int8(1), np.int16(1), False),
        (np.float32(NAN), np.float32(NAN), True),
        ([1, NAN], [1, NAN], True),
        ([1], [1, 2], False),
        ((1,), [1], False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": NAN}, {"a": NAN}, True),
        ({"a": 1}, {"b": 1}, False),
        (np.zeros(2, "<i2"), np.zeros(2, "<i2"), True),
        (np.zeros(2, "<i2"), np.zeros(2, ">i2"), False),
        (np.zeros((2, 1)), np.zeros((1, 2)), False),
        (np.zeros(1), -np.zeros(1), False),
        (np.array([NAN]), np.array([NAN]), True),
    ],
)
def test_equality(a, b, alike):
    assert same(a, b) is alike
