"""The conformance tests must find what is wrong with a compression."""

from __future__ import annotations

import gzip
import io
import random
import zlib

import pytest
from hypothesis import Phase, settings
from streamplug_testing import compression as kit
from streamplug_testing.compression import CompressionTests

from streamplug.builtin.compressions.gzip import Gzip
from streamplug.errors import ConfigError, DecompressError
from streamplug.plugin_kit.codec_errors import damaged_error, too_large_error

FAILURES = (AssertionError, pytest.fail.Exception)


def run(kind: type[Gzip], test: str, *arguments: object) -> None:
    suite = type("Suite", (CompressionTests,), {"cls": kind})()
    getattr(suite, test)(*arguments)


class BoundCheckedAfterwards(Gzip):
    def decompress(self, data, *, max_size):
        unpacked = zlib.decompress(data, 31)
        if len(unpacked) > max_size:
            raise too_large_error(self.suffix, max_size)
        return unpacked

    def decompress_stream(self, source, target, *, max_size):
        return target.write(self.decompress(source.read(), max_size=max_size))


@pytest.mark.parametrize(
    "test", ["test_bomb_takes_no_memory", "test_stream_of_a_bomb_takes_no_memory"]
)
def test_a_bound_checked_afterwards_is_found(test):
    with pytest.raises(AssertionError):
        run(BoundCheckedAfterwards, test)


class BelievesTheHeader(Gzip):
    """Data after their size, which bounds nothing."""

    def compress(self, data):
        return len(data).to_bytes(8, "little") + super().compress(data)

    def decompress(self, data, *, max_size):
        size = int.from_bytes(data[:8], "little")
        if size > max_size:
            raise too_large_error(self.suffix, max_size)
        try:
            unpacked = zlib.decompress(data[8:], 31)
        except zlib.error as error:
            raise damaged_error(self.suffix, error) from error
        if len(data) < 8 or len(unpacked) != size:
            raise damaged_error(self.suffix, "it has another size")
        return unpacked

    def decompress_stream(self, source, target, *, max_size):
        return target.write(self.decompress(source.read(), max_size=max_size))


def test_a_size_believed_is_found():
    run(BelievesTheHeader, "test_bomb_takes_no_memory")
    with pytest.raises(AssertionError):
        run(BelievesTheHeader, "test_bomb_behind_a_harmless_header_takes_no_memory")


class NoBound(Gzip):
    def decompress(self, data, *, max_size):
        return super().decompress(data, max_size=1 << 30)


@pytest.mark.parametrize("test", ["test_bound_is_exact", "test_bomb_takes_no_memory"])
def test_a_missing_bound_is_found(test):
    with pytest.raises(FAILURES):
        run(NoBound, test)


class BoundOffByOne(Gzip):
    def decompress(self, data, *, max_size):
        return super().decompress(data, max_size=max_size - 1)


def test_a_bound_off_by_one_is_found():
    with pytest.raises(DecompressError):
        run(BoundOffByOne, "test_bound_is_exact")


class Lenient(Gzip):
    """Stops at the end of the first member, or of the input."""

    def decompress(self, data, *, max_size):
        return zlib.decompressobj(31).decompress(data, max_size)


@pytest.mark.parametrize(
    "test", ["test_truncated_data_is_refused", "test_trailing_garbage_is_refused"]
)
def test_leniency_is_found(test):
    with pytest.raises(FAILURES):
        run(Lenient, test)


class ForeignErrors(Gzip):
    def decompress(self, data, *, max_size):
        try:
            return super().decompress(data, max_size=max_size)
        except DecompressError as error:
            raise error.__cause__ or error from None


@pytest.mark.parametrize("test", ["test_garbage_does_no_harm", "test_flipped_bits_do_no_harm"])
def test_errors_of_the_library_are_found(test, monkeypatch):
    # That it fails is enough: looking for the smallest value that makes it fail takes long.
    briefly = settings(kit._thorough, phases=[Phase.explicit, Phase.generate])
    monkeypatch.setattr(kit, "_thorough", briefly)
    with pytest.raises(zlib.error):
        run(ForeignErrors, test)


class DisguisesFileErrors(Gzip):
    def decompress_stream(self, source, target, *, max_size):
        try:
            return super().decompress_stream(source, target, max_size=max_size)
        except OSError as error:
            raise damaged_error(self.suffix, error) from error


def test_disguised_errors_of_files_are_found():
    with pytest.raises(DecompressError):
        run(DisguisesFileErrors, "test_errors_of_the_files_pass")


class Moody(Gzip):
    def compress(self, data):
        return gzip.compress(data, mtime=random.randrange(1 << 31))


def test_changing_output_is_found():
    with pytest.raises(AssertionError):
        run(Moody, "test_same_input_gives_same_output")


class Shared(Gzip):
    """Keeps a codec from call to call."""

    def __init__(self, level=None):
        super().__init__(level)
        self.codec = zlib.compressobj()


@pytest.mark.parametrize(
    "arguments", [("test_pickles",), ("test_works_in_another_process", "fork")]
)
def test_state_that_does_not_pickle_is_found(arguments):
    with pytest.raises(TypeError, match="pickle"):
        run(Shared, *arguments)


class LossyStream(Gzip):
    def decompress_stream(self, source, target, *, max_size):
        whole = io.BytesIO()
        super().decompress_stream(source, whole, max_size=max_size)
        return target.write(whole.getvalue()[:-1])


@pytest.mark.parametrize(
    "test", ["test_stream_equals_memory", "test_stream_of_much", "test_stream_from_a_slow_source"]
)
def test_a_stream_that_loses_bytes_is_found(test):
    with pytest.raises(AssertionError):
        run(LossyStream, test)


class PicksLevels(Gzip):
    def __init__(self, level=None):
        super().__init__(level if level in self.levels else None)

    @classmethod
    def from_spec(cls, argument):
        return cls(
            int(argument) if argument and argument.isdecimal() and len(argument) < 9 else None
        )


@pytest.mark.parametrize(
    "arguments", [("test_bad_level_is_refused",), ("test_bad_spec_is_refused", "best")]
)
def test_tolerated_levels_are_found(arguments):
    with pytest.raises(pytest.fail.Exception):
        run(PicksLevels, *arguments)


def test_golden_bytes_are_compared():
    packed = gzip.compress(b"right").hex()
    suite = type("Suite", (CompressionTests,), {"cls": Gzip, "golden": {packed: b"wrong"}})()
    with pytest.raises(AssertionError):
        suite.test_golden_bytes()


class OwnWords(Gzip):
    """Raises the right errors in words of its own."""

    def __init__(self, level=None):
        try:
            super().__init__(level)
        except ConfigError:
            raise ConfigError("no such thing") from None

    @classmethod
    def from_spec(cls, argument):
        try:
            return super().from_spec(argument)
        except ConfigError:
            raise ConfigError("no such thing") from None

    def decompress(self, data, *, max_size):
        try:
            return super().decompress(data, max_size=max_size)
        except DecompressError:
            raise DecompressError("too much of a good thing") from None

    def decompress_stream(self, source, target, *, max_size):
        try:
            return super().decompress_stream(source, target, max_size=max_size)
        except DecompressError:
            raise DecompressError("too much of a good thing") from None


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        *(("test_bad_level_is_refused", ()), ("test_bad_spec_is_refused", ("best",))),
        *((f"test_{what}_is_exact", ()) for what in ("bound", "stream_bound")),
        *((f"test_{what}_takes_no_memory", ()) for what in ("bomb", "stream_of_a_bomb")),
    ],
)
def test_errors_may_be_worded_otherwise(test, arguments):
    run(OwnWords, test, *arguments)
