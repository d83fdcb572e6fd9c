"""Conformance tests of compressions, for plugin authors to subclass."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug.errors import ConfigError, DecompressError
from streamplug.interfaces import Compression
from streamplug.plugin import make, resolve
from streamplug_testing.deviations import ConformanceBase
from streamplug_testing.equality import same
from streamplug_testing.memory import takes_less_of_the_system
from streamplug_testing.processes import other_process

_MIB = 1 << 20
_START_METHODS = sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods()))

_thorough = settings(max_examples=min(60, settings().max_examples), deadline=None)

_contents = st.binary(max_size=2000) | st.builds(
    lambda pattern, times: pattern * times, st.binary(max_size=50), st.integers(0, 1000)
)
"""Strategy for data that is partly compressible."""


def _sample(size: int) -> bytes:
    """Return deterministic bytes that are partly compressible."""
    noise = random.Random(size).randbytes(min(size // 2, 3000))
    text = b"".join(b"line %d\n" % number for number in range(1000))
    block = noise + text
    return (block * (size // len(block) + 1))[:size]


class CompressionTests(ConformanceBase):
    """Conformance tests of a compression; declare known failures in `deviations`.

    Attributes:
        name: Registered name; without one, set `cls`.
        cls: The class; by default, the class registered as `name`.
        sample_levels: Levels to test; by default the first, the last and the default level.
        golden: Data by the hex digits of a compressed file that must decompress to it.
    """

    name: ClassVar[str] = ""
    cls: ClassVar[type[Compression] | None] = None
    sample_levels: ClassVar[Sequence[int] | None] = None
    golden: ClassVar[Mapping[str, bytes]] = {}

    @classmethod
    def compression_class(cls) -> type[Compression]:
        """Return the class under test."""
        return cls.cls or resolve("compression", cls.name)

    @classmethod
    def at_sample_levels(cls) -> list[Compression]:
        """Return an instance for each tested level."""
        kind = cls.compression_class()
        levels = {kind.default_level}
        if cls.sample_levels is not None:
            levels.update(cls.sample_levels)
        elif kind.levels is not None:
            levels.update((kind.levels[0], kind.levels[-1]))
        return [kind(level) for level in levels]

    # -- what it declares -----------------------------------------------------

    def test_name_stands_for_the_class(self) -> None:
        if not self.name:
            pytest.skip("no name given")
        assert resolve("compression", self.name) is self.compression_class()

    def test_suffix_is_the_end_of_a_file_name(self) -> None:
        suffix = self.compression_class().suffix
        assert not suffix.startswith(".")
        assert not set(suffix) & set("/\\ :")

    def test_default_level_is_among_the_levels(self) -> None:
        kind = self.compression_class()
        assert kind().level == kind.default_level
        if kind.levels is None:
            assert kind.default_level is None
        else:
            assert kind.default_level in kind.levels

    def test_spec_gives_the_level(self) -> None:
        kind = self.compression_class()
        assert kind.from_spec(None).level == kind.default_level
        for level in kind.levels or ():
            assert kind.from_spec(str(level)).level == level
            if self.name:
                made = make("compression", f"{self.name}:{level}")
                assert (type(made), made.level) == (kind, level)

    def test_bad_level_is_refused(self) -> None:
        kind = self.compression_class()
        for level in (0, 1) if kind.levels is None else (kind.levels[0] - 1, kind.levels[-1] + 1):
            with pytest.raises(ConfigError):
                kind(level)

    @pytest.mark.parametrize(
        "argument",
        ["", "best", "-1", "1.5", "\u0663", "9" * 5000],
        ids=lambda text: ascii(text[:9]),
    )
    def test_bad_spec_is_refused(self, argument: str) -> None:
        with pytest.raises(ConfigError):
            self.compression_class().from_spec(argument)

    # -- what it does ---------------------------------------------------------

    def test_round_trip(self) -> None:
        @_thorough
        @given(st.sampled_from(self.at_sample_levels()), _contents)
        def check(compression: Compression, data: bytes) -> None:
            assert same(
                compression.decompress(compression.compress(data), max_size=len(data)), data
            )

        check()

    @pytest.mark.parametrize("size", [0, 1])
    def test_round_trip_of_hardly_anything(self, size: int) -> None:
        for compression in self.at_sample_levels():
            packed = compression.compress(bytes(size))
            assert same(compression.decompress(packed, max_size=size), bytes(size))

    def test_round_trip_of_much(self) -> None:
        compression, data = self.compression_class()(), _sample(8 * _MIB)
        packed = _compressed_sample(type(compression))
        assert same(compression.decompress(packed, max_size=len(data)), data)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_takes_any_kind_of_bytes(self, kind: type[bytes]) -> None:
        compression, data = self.compression_class()(), _sample(5000)
        packed = compression.compress(kind(data))
        unpacked = compression.decompress(kind(packed), max_size=len(data))
        assert (type(packed), type(unpacked)) == (bytes, bytes)
        assert same((packed, unpacked), (compression.compress(data), data))

    def test_same_input_gives_same_output(self) -> None:
        data = _sample(100_000)
        for compression in self.at_sample_levels():
            again = type(compression)(compression.level)
            packed = compression.compress(data)
            assert same(compression.compress(data), packed)
            assert same(again.compress(data), packed)

    def test_golden_bytes(self) -> None:
        if not self.golden:
            pytest.skip("no golden bytes given")
        compression = self.compression_class()()
        for packed, data in self.golden.items():
            assert same(compression.decompress(bytes.fromhex(packed), max_size=len(data)), data)
            assert same(_stream(compression, bytes.fromhex(packed), len(data)), data)

    # -- what it refuses ------------------------------------------------------

    def test_truncated_data_is_refused(self) -> None:
        compression, data = self.compression_class()(), _sample(20_000)
        packed = compression.compress(data)
        points = {*range(64), *range(0, len(packed), 101), *range(len(packed) - 64, len(packed))}
        for point in points & set(range(len(packed))):
            with pytest.raises(DecompressError):
                compression.decompress(packed[:point], max_size=len(data))
            with pytest.raises(DecompressError):
                _stream(compression, packed[:point], len(data))

    def test_trailing_garbage_is_refused(self) -> None:
        compression, data = self.compression_class()(), _sample(20_000)
        packed = compression.compress(data)
        for extra in (b"\0", b"\xff", bytes(8), b"garbage", packed[:5], bytes(200_000)):
            with pytest.raises(DecompressError):
                compression.decompress(packed + extra, max_size=10 * len(data))
            with pytest.raises(DecompressError):
                _stream(compression, packed + extra, 10 * len(data))

    def test_garbage_does_no_harm(self) -> None:
        compression = self.compression_class()()
        packed = compression.compress(_sample(2000))
        beginnings = st.integers(0, 30).map(lambda size: packed[:size])

        @_thorough
        @given(st.builds(bytes.__add__, beginnings, st.binary(max_size=300)))
        def check(garbage: bytes) -> None:
            _do_no_harm(compression, garbage)

        check()

    def test_flipped_bits_do_no_harm(self) -> None:
        compression = self.compression_class()()
        packed = compression.compress(_sample(2000))

        @_thorough
        @given(st.sets(st.integers(0, 8 * len(packed) - 1), min_size=1, max_size=5))
        def check(bits: set[int]) -> None:
            flipped = bytearray(packed)
            for bit in bits:
                flipped[bit // 8] ^= 1 << bit % 8
            _do_no_harm(compression, bytes(flipped))

        check()

    def test_bound_is_exact(self) -> None:
        for compression in self.at_sample_levels():
            for size in (1, 1000, 70_000):
                data = _sample(size)
                packed = compression.compress(data)
                assert same(compression.decompress(packed, max_size=size), data)
                for less in {0, size // 2, size - 1}:
                    with pytest.raises(DecompressError):
                        compression.decompress(packed, max_size=less)

    def test_bomb_takes_no_memory(self) -> None:
        compression = self.compression_class()()
        bomb = _bomb(compression)

        def explode() -> None:
            with pytest.raises(DecompressError):
                compression.decompress(bomb, max_size=1000)

        assert takes_less_of_the_system(24 * _MIB, explode)

    def test_bomb_behind_a_harmless_header_takes_no_memory(self) -> None:
        compression = self.compression_class()()
        small, bomb = compression.compress(bytes(500)), _bomb(compression)
        if len(bomb) > 8 * _MIB:
            pytest.skip("it does not compress")

        # Such data is damaged, unless the header says nothing about the size.
        def explode(packed: bytes) -> None:
            target = io.BytesIO()
            with suppress(DecompressError):
                assert len(compression.decompress(packed, max_size=1000)) <= 1000
            with suppress(DecompressError):
                compression.decompress_stream(io.BytesIO(packed), target, max_size=1000)
            assert target.tell() <= 1000

        for cut in range(1, min(len(small), 24)):
            packed = small[:cut] + bomb[cut:]
            assert takes_less_of_the_system(24 * _MIB, partial(explode, packed)), cut

    # -- from file to file ----------------------------------------------------

    def test_stream_equals_memory(self) -> None:
        @_thorough
        @given(st.sampled_from(self.at_sample_levels()), _contents)
        def check(compression: Compression, data: bytes) -> None:
            assert same(_stream(compression, compression.compress(data), len(data)), data)

        check()

    def test_stream_of_much(self) -> None:
        compression, data = self.compression_class()(), _sample(8 * _MIB)
        assert same(_stream(compression, _compressed_sample(type(compression)), len(data)), data)

    def test_stream_from_a_slow_source(self) -> None:
        for compression in self.at_sample_levels():
            data = _sample(5000)
            source, target = _Trickle(compression.compress(data)), io.BytesIO()
            assert compression.decompress_stream(source, target, max_size=len(data)) == len(data)
            assert same(target.getvalue(), data)

    def test_stream_bound_is_exact(self) -> None:
        compression, data = self.compression_class()(), _sample(70_000)
        packed, target = compression.compress(data), io.BytesIO()
        with pytest.raises(DecompressError):
            compression.decompress_stream(io.BytesIO(packed), target, max_size=len(data) - 1)
        assert target.tell() < len(data)

    def test_stream_of_a_bomb_takes_no_memory(self) -> None:
        compression, target = self.compression_class()(), io.BytesIO()
        packed = _bomb(compression)

        def explode() -> None:
            target.seek(0)
            bomb = io.BytesIO(packed)
            with pytest.raises(DecompressError):
                compression.decompress_stream(bomb, target, max_size=1000)

        assert takes_less_of_the_system(24 * _MIB, explode)
        assert target.tell() <= 1000

    def test_errors_of_the_files_pass(self) -> None:
        compression, data = self.compression_class()(), _sample(5000)
        packed = compression.compress(data)
        with pytest.raises(OSError, match="no way"):
            compression.decompress_stream(_Broken(), io.BytesIO(), max_size=len(data))
        with pytest.raises(OSError, match="no way"):
            compression.decompress_stream(io.BytesIO(packed), _Broken(), max_size=len(data))

    # -- where it runs --------------------------------------------------------

    def test_pickles(self) -> None:
        for compression in self.at_sample_levels():
            copy = pickle.loads(pickle.dumps(compression))
            assert (type(copy), copy.level) == (type(compression), compression.level)
            assert copy.compress(b"data" * 99) == compression.compress(b"data" * 99)

    @pytest.mark.parametrize("method", _START_METHODS)
    def test_works_in_another_process(self, method: str) -> None:
        compression, data = self.compression_class()(), _sample(50_000)
        packed = compression.compress(data)
        with other_process(method) as pool:
            result = pool.apply_async(_there_and_back, (compression, data))
            assert same(result.get(timeout=120), (packed, data))

    def test_serves_many_threads(self) -> None:
        compression = self.compression_class()()
        inputs = [_sample(15_000 + number) for number in range(64)]
        with ThreadPoolExecutor(8) as threads:
            results = list(threads.map(lambda data: _there_and_back(compression, data), inputs))
        assert same(results, [(compression.compress(data), data) for data in inputs])


class _Trickle(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size if size is None or size < 0 else min(size, 1))


class _Broken(io.BytesIO):
    def read(self, *_: object) -> bytes:
        raise OSError("no way")

    def write(self, *_: object) -> int:
        raise OSError("no way")


def _stream(compression: Compression, packed: bytes, max_size: int) -> bytes:
    target = io.BytesIO()
    size = compression.decompress_stream(io.BytesIO(packed), target, max_size=max_size)
    assert size == target.tell()
    return target.getvalue()


def _there_and_back(compression: Compression, data: bytes) -> tuple[bytes, bytes]:
    packed = compression.compress(data)
    return packed, compression.decompress(packed, max_size=len(data))


def _do_no_harm(compression: Compression, garbage: bytes) -> None:
    """Check that one-shot and streaming decompression both refuse the data or return the same bytes."""
    try:
        data = compression.decompress(garbage, max_size=10_000)
    except DecompressError:
        with pytest.raises(DecompressError):
            _stream(compression, garbage, 10_000)
    else:
        assert len(data) <= 10_000
        assert same(_stream(compression, garbage, 10_000), data)


def _bomb(compression: Compression) -> bytes:
    return _compressed_zeros(type(compression))


@cache
def _compressed_sample(kind: type[Compression]) -> bytes:
    return kind().compress(_sample(8 * _MIB))


@cache
def _compressed_zeros(kind: type[Compression]) -> bytes:
    return kind().compress(bytes(64 * _MIB))
