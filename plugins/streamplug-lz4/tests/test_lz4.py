from __future__ import annotations

from typing import ClassVar

import lz4.frame
import pytest
from streamplug_lz4.compression import LZ4
from streamplug_testing.compression import CompressionTests

from streamplug.errors import DecompressError

TEXT = b"streamplug streams training data\n" * 3


class TestLZ4(CompressionTests):
    name = "lz4"
    cls = LZ4
    golden: ClassVar = {
        # lz4 -9
        "04224d186440a729000000b273747265616d706c7567200b00ff017320747261696e696e6720646174610a21"
        "002a50646174610a0000000050c25e01": TEXT,
        # python-lz4, without a checksum
        "04224d1868406300000000000000382c000000b273747265616d706c7567200b00f2017320747261696e696e"
        "6720646174610a16000f21002450646174610a00000000": TEXT,
        # python-lz4, level 9, independent blocks, each with a checksum
        "04224d187040ad29000000b273747265616d706c7567200b00ff017320747261696e696e6720646174610a21"
        "002a50646174610a0de1fd9600000000": TEXT,
    }


def test_frame_tells_the_size_and_has_a_checksum():
    info = lz4.frame.get_frame_info(LZ4().compress(TEXT))
    assert (info["content_size"], info["content_checksum"]) == (len(TEXT), True)


def test_wrong_checksum_is_refused():
    packed = bytearray(LZ4().compress(TEXT))
    packed[-1] ^= 1
    with pytest.raises(DecompressError, match="contentChecksum"):
        LZ4().decompress(packed, max_size=len(TEXT))


def test_frames_put_together_decompress_to_their_contents_together():
    packed = b"".join(LZ4().compress(part) for part in (b"one ", b"", b"two ", bytes(10**6)))
    assert LZ4().decompress(packed, max_size=10**6 + 8) == b"one two " + bytes(10**6)
    with pytest.raises(DecompressError, match="expands beyond"):
        LZ4().decompress(packed, max_size=10**6 + 7)


def test_python_lz4_reads_what_is_written():
    assert lz4.frame.decompress(LZ4(16).compress(TEXT)) == TEXT
