from __future__ import annotations

import io
from typing import ClassVar

import brotli
import pytest
from streamplug_brotli.compression import Brotli
from streamplug_testing.compression import CompressionTests

from streamplug.errors import DecompressError

TEXT = b"streamplug streams training data\n" * 3


class TestBrotli(CompressionTests):
    name = "br"
    cls = Brotli
    golden: ClassVar = {
        # Quality 11
        "1b62004814a1d25b218c8c0e4ce480bdb50c4ef2dacc3ac019ed9873519ac4e582a302": TEXT,
        # Quality 0
        "0b31000080aaaaaaeaffae97939caf0ca0020202a0222020ccfa7f57fd7beeadee19d5e56d0c77c58b8585858d"
        "8d55bdcca80e3e7cf831180cc67126ab6a30180c0683c11cea8c484569140e0bed247b4f708f5a47cdfb61a7f8"
        "294d8bececb00be1dcc19b791a": TEXT,
    }


class Bytewise(io.BytesIO):
    def read(self, size=-1):
        return super().read(min(size, 1))


@pytest.mark.parametrize("source", [io.BytesIO, Bytewise])
def test_a_second_stream_is_refused(source):
    packed = Brotli().compress(TEXT)
    with pytest.raises(DecompressError, match="damaged"):
        Brotli().decompress_stream(source(packed * 2), io.BytesIO(), max_size=1000)


def test_brotli_reads_what_is_written():
    assert brotli.decompress(Brotli().compress(TEXT)) == TEXT
