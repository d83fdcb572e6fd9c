from __future__ import annotations

from typing import ClassVar

import pytest
import zstandard
from streamplug_testing.compression import CompressionTests
from streamplug_zstandard.compression import Zstandard

from streamplug.errors import DecompressError

TEXT = b"streamplug streams training data\n" * 3
MAGIC = bytes.fromhex("28b52ffd")


class TestZstandard(CompressionTests):
    name = "zstd"
    cls = Zstandard
    golden: ClassVar = {
        # zstd -19
        "28b52ffd0468250100d873747265616d706c7567207320747261696e696e6720646174610a02004e945c1e8a"
        "17c82b320c": TEXT,
        # One shot by python-zstandard, level 3, without a checksum
        "28b52ffd2063250100d873747265616d706c7567207320747261696e696e6720646174610a02004e945c1e8a"
        "17": TEXT,
        # Level 22, in pieces: no size of the content
        "28b52ffd0068350100d873747265616d706c7567207320747261696e696e6720646174610a0300888200a2d6"
        "f250bc": TEXT,
        # Two frames
        "28b52ffd203189010073747265616d706c75672073747265616d7320747261696e696e6720646174610a7374"
        "7265616d706c756720737472656128b52ffd20322d0100e06d7320747261696e696e6720646174610a737472"
        "65616d706c756720020044218087e204": TEXT,
    }


def frame_with_window(exponent: int) -> bytes:
    """Return a frame of three bytes that claims a window of `1 << 10 + exponent` bytes."""
    last_raw_block = (1 | len(b"abc") << 3).to_bytes(3, "little") + b"abc"
    return MAGIC + bytes([0, exponent << 3]) + last_raw_block


def test_frame_tells_the_size_of_its_content():
    assert zstandard.frame_content_size(Zstandard().compress(TEXT)) == len(TEXT)


def test_frames_put_together_decompress_to_their_contents_together():
    packed = b"".join(Zstandard().compress(part) for part in (b"one ", b"", b"two ", bytes(10**6)))
    assert Zstandard().decompress(packed, max_size=10**6 + 8) == b"one two " + bytes(10**6)
    with pytest.raises(DecompressError, match="expands beyond"):
        Zstandard().decompress(packed, max_size=10**6 + 7)


def test_skippable_frames_are_skipped():
    skippable = bytes.fromhex("502a4d18 03000000 616263")
    packed = skippable + Zstandard().compress(TEXT) + skippable
    assert Zstandard().decompress(packed, max_size=len(TEXT)) == TEXT


def test_windows_that_no_level_has_are_refused():
    assert Zstandard().decompress(frame_with_window(17), max_size=3) == b"abc"
    for exponent in (18, 21, 31):
        with pytest.raises(DecompressError, match="memory"):
            Zstandard().decompress(frame_with_window(exponent), max_size=3)


def test_the_window_of_the_last_level_decompresses():
    data = b"".join(number.to_bytes(4, "little") for number in range(1 << 14))
    window = zstandard.ZstdCompressionParameters.from_level(22).window_log
    # Its window without its tables, which take 0.7 GB.
    options = zstandard.ZstdCompressionParameters.from_level(1, window_log=window)
    packer = zstandard.ZstdCompressor(compression_params=options).compressobj()
    pieces = packer.compress(data) + packer.flush()
    assert zstandard.get_frame_parameters(pieces).window_size == 1 << 27
    assert Zstandard().decompress(pieces, max_size=len(data)) == data
