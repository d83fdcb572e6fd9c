"""Values that become far larger than they are stored stop at `max_value_bytes`."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest
from streamplug_testing.memory import takes_less
from streamplug_webdataset import Decoder, WebDataset

from streamplug import StreamingDataset
from streamplug.errors import DecodeError
from streamplug.interfaces.encoding import MAX_VALUE_BYTES
from streamplug.plugin.registry import make

MB = 1 << 20
LIMIT = rf"max_value_bytes={MB} when decoded; raise max_value_bytes="


def decode(spec, data, limit=MB):
    return make("encoding", spec).with_max_value_bytes(limit).decode(memoryview(data))


def refuses(spec, data, match=LIMIT):
    def act():
        with pytest.raises(DecodeError, match=match):
            decode(spec, data)

    return takes_less(5 * MB, act)


def npz(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, value in members.items():
            file.writestr(name, make("encoding", "npy").encode(value))
    return out.getvalue()


def test_gzip():
    bomb = gzip.compress(bytes(16 * MB))
    assert refuses("gzipped:bytes", bomb)
    assert refuses("gzipped:bytes", bomb[:-4] + bytes(4))  # it lies about its size
    assert refuses("gzipped:bytes", gzip.compress(bytes(MB)) + gzip.compress(b"x"), "at most 1048")
    assert len(decode("gzipped:bytes", gzip.compress(bytes(MB)))) == MB
    assert decode("gzipped:bytes", gzip.compress(b"ab") + gzip.compress(b"c")) == b"abc"
    assert refuses("gzipped:npz", gzip.compress(npz({"a.npy": np.zeros(MB)})))


def test_npz():
    assert refuses("npz", npz({f"{n}.npy": np.zeros(MB // 2, np.uint8) for n in range(3)}))
    stored = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = stored.compress(bytes(16 * MB)) + stored.flush()
    out, member = io.BytesIO(), zipfile.ZipInfo("a.npy")
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(member, stream)
        member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, 1000  # which it is not
    assert refuses("npz", out.getvalue(), "Bad CRC")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert refuses("npz", npz({"a.npy": np.zeros(4)}, method), "neither stored nor deflated")
    assert decode("npz", npz({"a.npy": np.arange(4)}))["a"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("descr", ["|V0", "|S0", "<U0", []])
def test_arrays_of_items_without_bytes(descr):
    out = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": (10**8,)}
    np.lib.format.write_array_header_1_0(out, header)
    assert refuses("npy", out.getvalue(), "have no bytes")


@pytest.mark.parametrize(
    "head", ["(" * 99, "'''", "\t\n  x\n y", "-" * 9000 + "1", "{'descr': 01}"]
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::SyntaxWarning")
def test_heads_of_arrays_that_are_no_literals(head):
    data = b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + bytes(8)
    with pytest.raises(DecodeError, match=r"not a \.npy file: \w+"):
        decode("npy", data)


@pytest.fixture
def archive(tmp_path):
    picture = io.BytesIO()
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (1000, 1000)).save(picture, "PNG")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, data in (("txt.gz", gzip.compress(bytes(2 * MB))), ("png", picture.getvalue())):
            member = tarfile.TarInfo(f"0.{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(tmp_path / "a.tar")


@pytest.mark.parametrize("batched", [False, True])
def test_members_of_archives(archive, batched):
    def read(limit, column="txt.gz"):
        dataset = StreamingDataset(
            remote=archive,
            format="webdataset",
            batch_size=1,
            columns=[column],
            max_value_bytes=limit,
        )
        return next(dataset.batches())[column][0] if batched else dataset[0][column]

    with pytest.raises(DecodeError, match=rf"sample 0\D.*txt\.gz.*{LIMIT}"):
        read("1mb")
    assert len(read("2mb")) == 2 * MB
    assert len(read(None)) == 2 * MB


def test_the_stage_that_decodes(archive):
    def read(limit, **options):
        return next(iter(WebDataset(archive).decode("rgb8", max_value_bytes=limit, **options)))

    with pytest.raises(DecodeError, match=LIMIT):
        read(MB)
    with pytest.raises(DecodeError, match=r"image of 1000 x 1000 pixels takes more than"):
        read(2 * MB, only="png")
    assert read(MAX_VALUE_BYTES)["png"].shape == (1000, 1000, 3)


def test_no_program_is_run_for_an_image():
    pytest.importorskip("PIL")
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"
    with pytest.raises(DecodeError, match="cannot identify image"):
        Decoder(["pil"])({"__key__": "0", "png": script})
