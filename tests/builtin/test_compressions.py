from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import ClassVar

import pytest
from streamplug_testing.compression import CompressionTests

from streamplug.errors import ConfigError, DecompressError
from streamplug.plugin import make

TEXT = b"streamplug streams training data\n" * 3


class TestNone(CompressionTests):
    name = "none"
    golden: ClassVar = {TEXT.hex(): TEXT}
    deviations: ClassVar = {
        "test_truncated_data_is_refused": "plain bytes have no end of their own",
        "test_trailing_garbage_is_refused": "plain bytes have no end of their own",
    }


class TestGzip(CompressionTests):
    name = "gz"
    golden: ClassVar = {
        # gzip -9n
        "1f8b08000000000002032b2e294a4dcc2dc8294d572806338b154a8a1233f332f3d21552124b12b98a295600"
        "009c788ef963000000": TEXT,
        # two members, each by gzip -1n
        "1f8b08000000000004032b2e294a4dcc2dc8294d572806338b154a8a1233f332f3d21552124b12b920a20805"
        "00e3696cb0310000001f8b0800000000000403cb2d5628294acccccbcc4b5748492c49e42a2e294a4dcc2dc8"
        "294d578030d1150000e20dfeed32000000": TEXT,
        # Python, with a time
        "1f8b080000f1536500ff2b2e294a4dcc2dc8294d572806338b154a8a1233f332f3d21552124b12b98a295600"
        "009c788ef963000000": TEXT,
    }


class TestBzip2(CompressionTests):
    name = "bz2"
    golden: ClassVar = {
        # bzip2 -9
        "425a6839314159265359b184e97700002751800010400026a75e00200050a600008fd52868c8f4d4e188536d"
        "b30cb2e614b4b4b4c2a16f5112db4c2550b7e2ee48a70a1216309d2ee0": TEXT,
    }


class TestXz(CompressionTests):
    name = "xz"
    golden: ClassVar = {
        # xz -6
        "fd377a585a000004e6d6b4460200210116000000742fe5a3e0006200235d00399d0a8c8c8a4645d43925b380"
        "0cbdf1aaedf3a04672869de4a3e7bd96dfe4014ae000000009e37c5ec395dcff00013f63f5afe3ac1fb6f37d"
        "010000000004595a": TEXT,
        # xz -0 --check=crc32
        "fd377a585a0000016922de36020021010c0000008f98419ce0006200235d00399d0a8c8c8a4645d43925b380"
        "0cbdf1aaedf3a04672869de4a3e7bd96dfe4014ae00000009c788ef900013b63f16a8fc89042990d01000000"
        "0001595a": TEXT,
    }


def xz_with_dictionary(code: int) -> bytes:
    """Return an xz file that claims the dictionary of that code, of up to 40 for 4 GiB."""
    packed = bytearray(lzma.compress(TEXT))
    # The block header: its size in words, flags, filter, size of its settings, the setting.
    assert packed[12:16] == b"\x02\x00\x21\x01"
    packed[16] = code
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    return bytes(packed)


@pytest.mark.parametrize(
    ("name", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_files_put_together_decompress_to_their_contents_together(name, compress):
    packed = b"".join(compress(part) for part in (b"one ", b"", b"two ", TEXT * 50_000))
    unpacked = make("compression", name).decompress(packed, max_size=10_000_000)
    assert unpacked == b"one two " + TEXT * 50_000


@pytest.mark.parametrize("name", ["gz", "bz2", "xz"])
def test_bound_holds_over_files_put_together(name):
    compression = make("compression", name)
    packed = compression.compress(bytes(600)) * 2
    assert compression.decompress(packed, max_size=1200) == bytes(1200)
    with pytest.raises(DecompressError, match="beyond the 1199 bytes"):
        compression.decompress(packed, max_size=1199)


@pytest.mark.parametrize(
    ("name", "decompress"),
    [("gz", gzip.decompress), ("bz2", bz2.decompress), ("xz", lzma.decompress)],
)
def test_standard_library_reads_what_is_written(name, decompress):
    assert decompress(make("compression", name).compress(TEXT)) == TEXT


def test_gzip_header_has_no_time():
    assert make("compression", "gz").compress(TEXT)[4:8] == bytes(4)


def test_xz_refuses_dictionaries_that_no_level_has():
    xz = make("compression", "xz")
    assert xz.decompress(xz_with_dictionary(28), max_size=1000) == TEXT  # 64 MiB, as level 9
    with pytest.raises(DecompressError, match="Memory usage limit"):
        xz.decompress(xz_with_dictionary(40), max_size=1000)


@pytest.mark.parametrize("spec", ["none:3", "none:x"])
def test_none_names_itself_when_given_a_level(spec):
    with pytest.raises(ConfigError, match="compression 'none' takes no level, got "):
        make("compression", spec)


@pytest.mark.parametrize("spec", ["bz2:0", "bz2:10", "bz2:fast"])
def test_message_about_a_level_says_which_there_are(spec):
    with pytest.raises(ConfigError, match="compression 'bz2' takes levels 1 to 9, got "):
        make("compression", spec)
