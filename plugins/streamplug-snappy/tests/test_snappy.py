from __future__ import annotations

from typing import ClassVar

import pytest
from streamplug_snappy.compression import Snappy
from streamplug_testing.compression import CompressionTests

from streamplug.errors import ConfigError, DecompressError
from streamplug.plugin import make

TEXT = b"streamplug streams training data\n" * 3


class TestSnappy(CompressionTests):
    name = "snappy"
    cls = Snappy
    golden: ClassVar = {
        # python-snappy
        "632873747265616d706c756720090b3c7320747261696e696e6720646174610a0916ee2100": TEXT,
        "00": b"",
    }


@pytest.mark.parametrize("data", [b"", b"a", TEXT, TEXT * 5000])
def test_works_with_python_snappy(data):
    snappy = pytest.importorskip("snappy")
    assert Snappy().decompress(snappy.compress(data), max_size=len(data)) == data
    assert snappy.decompress(Snappy().compress(data)) == data


def test_announced_size_is_checked_before_anything_is_decompressed():
    four_gib = bytes.fromhex("ffffffff0f") + b"\x00a"
    with pytest.raises(DecompressError, match="expands beyond the 1000 bytes"):
        Snappy().decompress(four_gib, max_size=1000)


@pytest.mark.parametrize("size", [2, 4])
def test_wrong_announced_size_is_refused(size):
    packed = bytes([size]) + Snappy().compress(b"abc")[1:]
    with pytest.raises(DecompressError, match="damaged"):
        Snappy().decompress(packed, max_size=10)


def test_there_are_no_levels():
    with pytest.raises(ConfigError, match="compression 'snappy' takes no level, got 1"):
        make("compression", "snappy:1")
