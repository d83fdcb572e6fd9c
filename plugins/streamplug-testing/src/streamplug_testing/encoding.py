"""Conformance tests of encodings, for plugin authors to subclass."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError
from streamplug.interfaces import Encoding, GatherBuffer, StoredRange
from streamplug.plugin import make
from streamplug.types import Bytes1D, Int64
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same
from streamplug_testing.memory import takes_less
from streamplug_testing.processes import other_process
from streamplug_testing.samples import hostile_pickles, unpickled
from streamplug_testing.vector_column import check_vectors

_MIB = 1 << 20
_START_METHODS = sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods()))

_thorough = settings(
    max_examples=min(50, settings().max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
_brief = settings(_thorough, max_examples=3)


class EncodingTests(ConformanceBase):
    """Conformance tests of an encoding; declare known failures in `deviations`.

    Attributes:
        spec: Name of the encoding with its argument: ``"ndarray:uint16:8"``.
        cls: The class, to test one that is not registered.
        argument: Argument of `from_spec`, with `cls`.
        bad_arguments: Arguments that `from_spec` must refuse.
        wrong: Values of a type that it must refuse.
        refused: Values of the right type that it must refuse.
        golden: Values, or functions that return them, by the hex digits of their encoded forms.
    """

    spec: ClassVar[str] = ""
    cls: ClassVar[type[Encoding] | None] = None
    argument: ClassVar[str | None] = None
    bad_arguments: ClassVar[Sequence[str]] = ("no such argument",)
    wrong: ClassVar[Sequence[object]] = ()
    refused: ClassVar[Sequence[object]] = ()
    golden: ClassVar[Sequence[tuple[object, str]]] = ()

    def values(self) -> st.SearchStrategy[Any]:
        """Return a strategy for valid values."""
        raise NotImplementedError(f"{type(self).__name__} must say which values it tries")

    def decoded(self, value: Any) -> Any:
        """Return what a value decodes to; override it if encoding loses information."""
        return value

    def equal(self, a: Any, b: Any) -> bool:
        """Return whether two decoded values are equal, including their types."""
        return same(a, b)

    def encoding(self) -> Encoding:
        """Return a new instance of the encoding under test."""
        made = (
            make("encoding", self.spec) if self.cls is None else self.cls.from_spec(self.argument)
        )
        assert isinstance(made, Encoding)
        return made

    # -- what it declares -----------------------------------------------------

    def test_bad_argument_is_refused(self) -> None:
        kind = type(self.encoding())
        for argument in self.bad_arguments:
            with pytest.raises(ConfigError):
                kind.from_spec(argument)

    def test_size_is_that_of_the_dtype(self) -> None:
        encoding = self.encoding()
        if encoding.dtype is None:
            pytest.skip("its values are not plain memory")
        assert encoding.size == encoding.dtype.itemsize
        assert not encoding.dtype.hasobject

    # -- single values --------------------------------------------------------

    def test_round_trip(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(self.values(), st.binary(max_size=5), st.binary(max_size=5))
        def check(value: Any, before: bytes, after: bytes) -> None:
            stored = encoding.encode(value)
            assert type(stored) is bytes
            assert encoding.size in (None, len(stored))
            assert encoding.encode(value) == stored
            stored_copy = memoryview(before + stored + after)[len(before) :][: len(stored)]
            assert self.equal(encoding.decode(stored_copy), self.decoded(value))

        check()

    def test_golden_bytes(self) -> None:
        if not self.golden:
            pytest.skip("no golden bytes given")
        encoding = self.encoding()
        for value, digits in self._golden():
            assert encoding.encode(value).hex() == digits
            decoded = encoding.decode(memoryview(bytes.fromhex(digits)))
            assert self.equal(decoded, self.decoded(value))

    def _golden(self) -> list[tuple[Any, str]]:
        return [(value() if callable(value) else value, hexes) for value, hexes in self.golden]

    def test_decoded_value_outlives_its_bytes(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(self.values())
        def check(value: Any) -> None:
            buffer = bytearray(encoding.encode(value))
            with memoryview(buffer) as view:  # fails on exit if a view of it is still held
                decoded = encoding.decode(view)
            buffer[:] = b"\xaa" * len(buffer)
            assert self.equal(decoded, self.decoded(value))

        check()

    def test_values_in_a_buffer_equal_single_ones(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(st.lists(self.values(), min_size=1, max_size=6))
        def check(values: list[Any]) -> None:
            buffer, starts, sizes = _lay_out([encoding.encode(value) for value in values])
            read_only = buffer.view()
            read_only.flags.writeable = False
            decode = encoding.bound_decoder(read_only)
            ends = [] if encoding.size is not None else [(starts + sizes).tolist()]
            decoded = [decode(*place) for place in zip(starts.tolist(), *ends)]
            check_vectors(encoding, read_only, starts, sizes)
            buffer[:] = 0xAA
            for value, one in zip(values, decoded, strict=True):
                assert self.equal(one, self.decoded(value))

        check()

    # -- batches --------------------------------------------------------------

    def test_batch_equals_single_values(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(st.lists(self.values(), min_size=1, max_size=6), st.data())
        def check(values: list[Any], data: st.DataObject) -> None:
            buffer, starts, sizes = _lay_out([encoding.encode(value) for value in values])
            row, size = st.integers(0, len(values) - 1), data.draw(st.sampled_from([1, 9]))
            rows = data.draw(st.lists(row, max_size=size))  # one row is often a case of its own
            # The buffer is read-only for the encoding, and overwritten afterwards.
            read_only = buffer.view()
            read_only.flags.writeable = False
            batch = encoding.decode_batch(GatherBuffer(read_only), starts[rows], sizes[rows])
            buffer[:] = 0xAA
            assert len(batch) == len(rows)
            if encoding.dtype is not None:
                array = np.asarray(batch)
                assert array.dtype == encoding.dtype.base
                assert array.shape == (len(rows), *encoding.dtype.shape)
            singles = encoding.unbatch(batch)
            assert len(singles) == len(rows)
            for n, single in zip(rows, singles, strict=True):
                assert self.equal(single, self.decoded(values[n]))

        check()

    def test_values_outside_the_buffer_are_refused(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(self.values().map(encoding.encode).filter(len))
        def check(stored: bytes) -> None:
            buffer, size = GatherBuffer(np.frombuffer(stored, np.uint8)), np.array([len(stored)])
            for start in (-1, 1, len(stored), 1 << 40):
                with pytest.raises(Exception):  # noqa: B017, PT011 - any will do
                    encoding.decode_batch(buffer, np.array([start]), size)

        check()

    def test_values_that_are_read_in_parts_equal_whole_ones(self) -> None:
        encoding = self.encoding()
        if not encoding.partial:
            pytest.skip("its values are read as a whole")

        @_brief
        @given(st.lists(self.values(), min_size=1, max_size=6))
        def check(values: list[Any]) -> None:
            buffer, starts, sizes = _lay_out([encoding.encode(value) for value in values])
            for value, start, size in zip(values, starts.tolist(), sizes.tolist()):
                far: Any = StoredRange(_Memory(buffer), start, size)
                assert self.equal(encoding.decode(far), self.decoded(value))

        check()

    def test_encoded_batch_equals_single_values(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(st.lists(self.values(), max_size=6))
        def check(values: list[Any]) -> None:
            stored = [encoding.encode(value) for value in values]
            assert _joined(encoding, encoding.encode_batch(values)) == stored
            if encoding.dtype is not None:
                buffer, starts, sizes = _lay_out(stored)
                batch = encoding.decode_batch(GatherBuffer(buffer), starts, sizes)
                again = encoding.encode_batch(batch)
                assert _joined(encoding, again) == stored
                assert not np.shares_memory(np.asarray(batch), np.asarray(again))

        check()

    # -- what it refuses ------------------------------------------------------

    def test_wrong_type_is_refused(self) -> None:
        if not self.wrong:
            pytest.skip("no value of a wrong type given")
        encoding = self.encoding()
        for value in self.wrong:
            with pytest.raises(EncodeTypeError, match=type(value).__name__):
                encoding.encode(value)
            with pytest.raises(EncodeTypeError):
                encoding.encode_batch([value])

    def test_value_that_cannot_be_stored_is_refused(self) -> None:
        encoding = self.encoding()
        refused = [*self.refused, *_out_of_range(encoding)]
        if not refused:
            pytest.skip("no such value given")
        for value in refused:
            with pytest.raises(EncodeError):
                encoding.encode(value)
            with pytest.raises(EncodeError):
                encoding.encode_batch([value])
            if type(value) in {int, float, np.ndarray}:
                with pytest.raises(EncodeError):
                    encoding.encode_batch(np.array([value]))

    def test_wrong_length_is_refused(self) -> None:
        encoding = self.encoding()
        if encoding.size is None:
            pytest.skip("its values have any length")
        size = encoding.size
        for length in {0, max(size - 1, 0), size + 1, 2 * size} - {size}:
            with pytest.raises(Exception):  # noqa: B017, PT011 - any will do
                encoding.decode(memoryview(bytes(length)))

    def test_truncated_value_does_no_harm(self) -> None:
        encoding = self.encoding()

        @_thorough
        @given(self.values().map(encoding.encode), st.data())
        def check(stored: bytes, data: st.DataObject) -> None:
            _decode_garbage(encoding, stored[: data.draw(st.integers(0, len(stored)))])

        check()

    def test_garbage_does_no_harm(self) -> None:
        encoding = self.encoding()
        if encoding.unsafe:
            pytest.skip("who allows it trusts the data")
        unpickled.clear()
        for hostile in hostile_pickles():
            _decode_garbage(encoding, hostile)
            assert not unpickled, "an encoding that executes code must be unsafe"
        size = encoding.size
        beginnings = self.values().map(encoding.encode)

        @_thorough
        @given(st.binary(min_size=size or 0, max_size=size or 200), beginnings, st.data())
        def check(garbage: bytes, stored: bytes, data: st.DataObject) -> None:
            _decode_garbage(encoding, garbage)
            cut = data.draw(st.integers(0, min(len(stored), 40)))
            _decode_garbage(encoding, (stored[:cut] + garbage + stored[cut:])[:size])
            _decode_garbage(encoding, (stored[:cut] + garbage)[:size])

        check()

    # -- where it runs --------------------------------------------------------

    def test_pickles(self) -> None:
        encoding = self.encoding()
        copy = pickle.loads(pickle.dumps(encoding))
        assert (type(copy), copy.size, copy.dtype) == (
            type(encoding),
            encoding.size,
            encoding.dtype,
        )

        @_brief
        @given(self.values())
        def check(value: Any) -> None:
            stored = encoding.encode(value)
            assert copy.encode(value) == stored
            assert self.equal(copy.decode(memoryview(stored)), self.decoded(value))

        check()

    @pytest.mark.parametrize("method", _START_METHODS)
    def test_works_in_another_process(self, method: str) -> None:
        encoding = self.encoding()
        with other_process(method) as pool:

            @_brief
            @given(st.lists(self.values(), min_size=1, max_size=4))
            def check(values: list[Any]) -> None:
                result = pool.apply_async(_there_and_back, (encoding, values))
                stored, decoded = result.get(timeout=120)
                assert stored == [encoding.encode(value) for value in values]
                for value, single in zip(values, decoded, strict=True):
                    assert self.equal(single, self.decoded(value))

            check()

    def test_serves_many_threads(self) -> None:
        encoding = self.encoding()

        @_brief
        @given(st.lists(self.values(), min_size=1, max_size=4))
        def check(values: list[Any]) -> None:
            stored = [encoding.encode(value) for value in values]
            with ThreadPoolExecutor(8) as threads:
                jobs = [threads.submit(_there_and_back, encoding, values) for _ in range(32)]
                results = [job.result() for job in jobs]
            for stored_again, decoded in results:
                assert stored_again == stored
                for value, single in zip(values, decoded, strict=True):
                    assert self.equal(single, self.decoded(value))

        check()


class _Memory:
    """Reads ranges of an array."""

    def __init__(self, data: Bytes1D) -> None:
        self._data = data

    def __call__(self, ranges: Int64) -> list[Bytes1D]:
        return [self._data[start:stop] for start, stop in ranges.tolist()]


def _out_of_range(encoding: Encoding) -> list[int]:
    """Return the integers just below and above those of the dtype; none if it is no integer."""
    if encoding.dtype is None or encoding.dtype.kind not in "iu":
        return []
    limits = np.iinfo(encoding.dtype)
    return [limits.min - 1, limits.max + 1]


def _lay_out(stored: Sequence[bytes]) -> tuple[Bytes1D, Int64, Int64]:
    """Return a buffer of encoded values with gaps between them, their offsets and their sizes."""
    sizes = np.array([len(value) for value in stored], np.int64)
    starts = 3 + np.cumsum(sizes + 1) - sizes
    buffer = bytearray(b"\xcc\xcc\xcc" + b"".join(b"\xcc" + value for value in stored))
    return np.frombuffer(buffer, np.uint8), starts, sizes


def _joined(encoding: Encoding, batch: list[bytes] | Bytes1D) -> list[bytes]:
    """Return the encoded values of a batch as a list."""
    if isinstance(batch, list):
        assert {type(value) for value in batch} <= {bytes}
        return batch
    assert encoding.size is not None
    assert batch.dtype == np.uint8
    assert batch.ndim == 1
    return [row.tobytes() for row in batch.reshape(-1, encoding.size)]


def _there_and_back(encoding: Encoding, values: list[Any]) -> tuple[list[bytes], list[Any]]:
    stored = [encoding.encode(value) for value in values]
    return stored, [encoding.decode(memoryview(value)) for value in stored]


def _decode_garbage(encoding: Encoding, data: bytes) -> None:
    """Check that decoding invalid bytes terminates and allocates little memory."""

    def attempt() -> None:
        # Any exception of an encoding is reported as DecodeError.
        with suppress(Exception):
            encoding.decode(memoryview(data))

    assert takes_less(4 * _MIB + 100 * len(data), attempt)
