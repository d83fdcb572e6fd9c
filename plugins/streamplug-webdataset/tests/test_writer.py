from __future__ import annotations

import gzip
import tarfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from streamplug_webdataset import WebDatasetWriter
from streamplug_webdataset.format import WebDataset

from streamplug import StreamingDataset, Writer
from streamplug.builtin.encodings.plain import Str
from streamplug.errors import (
    ConfigError,
    EncodeError,
    EncodeTypeError,
    OutputExistsError,
    WriterError,
)
from streamplug.interfaces import Column, WriteSettings


def rows(count=10):
    return [{"__key__": f"{i:04d}", "txt": f"text {i}", "cls": i} for i in range(count)]


def write(out, samples, **options):
    with WebDatasetWriter(str(out), **options) as writer:
        for sample in samples:
            writer.write(sample)


def names(path):
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_archives_have_so_many_samples_or_bytes(tmp_path):
    write(tmp_path / "count", rows(), maxcount=4)
    archives = sorted((tmp_path / "count").glob("*.tar"))
    assert [len(names(path)) // 2 for path in archives] == [4, 4, 2]
    write(tmp_path / "size", rows(), maxsize=3 * 2048 + 1024)
    archives = sorted((tmp_path / "size").glob("*.tar"))
    assert [len(names(path)) // 2 for path in archives] == [3, 3, 3, 1]
    assert max(path.stat().st_size for path in archives) == 3 * 2048 + 1024
    assert list(StreamingDataset(local=str(tmp_path / "size"))) == rows()


def test_batches_keep_to_the_number_of_samples(tmp_path):
    columns = {"__key__": "str", "txt": "str", "cls": "str_int"}
    with Writer(
        out=str(tmp_path), format="webdataset", columns=columns, max_samples_per_shard=4
    ) as out:
        out.write(rows()[0])
        out.write_batch({name: [row[name] for row in rows()[1:]] for name in columns})
    assert [len(names(path)) // 2 for path in sorted(tmp_path.glob("*.tar"))] == [4, 4, 2]
    assert list(StreamingDataset(local=str(tmp_path))) == rows()


def test_the_same_samples_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, rows(), hashes=["xxh64"])
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    with tarfile.open(tmp_path / "one" / "shard.00000.tar") as tar:
        members = tar.getmembers()
    assert {(m.mtime, m.mode, m.uid, m.gid, m.uname, m.gname) for m in members} == {
        (0, 0o444, 0, 0, "", "")
    }
    assert [member.name for member in members[:3]] == ["0000.cls", "0000.txt", "0001.cls"]
    write(tmp_path / "timed", rows(), mtime=1_700_000_000)
    with tarfile.open(tmp_path / "timed" / "shard.00000.tar") as tar:
        assert {member.mtime for member in tar} == {1_700_000_000}


def test_keys_are_numbers_where_none_are_given(tmp_path):
    write(tmp_path, [{"txt": "a"}, {"txt": "b"}, {"__key__": "own", "txt": "c"}])
    keys = [sample["__key__"] for sample in StreamingDataset(local=str(tmp_path))]
    assert keys == ["000000000", "000000001", "own"]
    for columns in (None, {"txt": "str"}):
        write(tmp_path, [{"txt": "d"}], append=True, columns=columns)
    found = StreamingDataset(local=str(tmp_path))
    assert [sample["__key__"] for sample in found][3:] == ["000000003", "000000004"]


def test_encodings_follow_from_extensions_and_values(tmp_path):
    image = Image.new("RGB", (3, 2), "red")
    sample = {
        "__key__": "a", "png": image, "jpg": b"\xff\xd8\xff", "npy": np.arange(3), "json": {"a": [1]},
        "id": 7, "txt.gz": "text", "npz": {"x": np.ones(2)}, "html": "<p>", "bin": b"\0", "msg": {"a": b"1"},
    }  # fmt: skip
    write(tmp_path, [sample])
    dataset = StreamingDataset(local=str(tmp_path))
    (found,) = dataset
    assert found.pop("png").tobytes() == image.tobytes()
    assert found.pop("npy").tolist() == [0, 1, 2]
    assert found.pop("npz")["x"].tolist() == [1, 1]
    assert found == {name: sample[name] for name in found}
    with tarfile.open(tmp_path / "shard.00000.tar") as tar:
        assert gzip.decompress(tar.extractfile("a.txt.gz").read()) == b"text"
        assert tar.extractfile("a.jpg").read() == b"\xff\xd8\xff"


def test_none_is_not_written(tmp_path):
    samples = [{"__key__": str(i), "txt": "a" if i % 2 else None, "cls": i} for i in range(4)]
    write(tmp_path, samples, columns={"txt": "str", "cls": "str_int"})
    assert Counter(name.partition(".")[2] for name in names(tmp_path / "shard.00000.tar")) == {
        "cls": 4,
        "txt": 2,
    }
    assert list(StreamingDataset(local=str(tmp_path))) == samples
    with pytest.raises(EncodeError, match="has no values but None"):
        write(tmp_path / "none", [{"txt": None}], columns={"txt": "str"})


@pytest.mark.parametrize("key", ["", "a.b", "a/b.c", "/a", "a/", "__a__/b", "a\n", "\ud800"])
def test_keys_that_readers_would_not_find_are_refused(tmp_path, key):
    with pytest.raises(EncodeError, match="__key__"):
        write(tmp_path, [{"__key__": key, "txt": "a"}])


def test_samples_in_a_row_with_one_key_are_refused(tmp_path):
    with pytest.raises(EncodeError, match=r"'0001.* is its second"):
        write(tmp_path / "same", [rows()[0], rows()[1], rows()[1]])
    alternating = [
        {"__key__": "a", "txt": None, "cls": 1},
        {"__key__": "a", "txt": "x", "cls": None},
    ]
    with pytest.raises(EncodeError, match="2 samples would be read as 1"):
        write(tmp_path / "other", alternating, columns={"txt": "str", "cls": "str_int"})


@pytest.mark.parametrize("name", ["TXT", "a/b", "", "__url__", "b__"])
def test_columns_that_are_no_extensions_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="column"):
        write(tmp_path, [], columns={name: "str"})


def test_wrong_use_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="maxsize= and maxcount="):
        WebDatasetWriter(str(tmp_path), size_limit=1)
    with pytest.raises(ConfigError, match="whole seconds"):
        WebDatasetWriter(str(tmp_path), mtime=1.5)
    with pytest.raises(ConfigError, match="max_samples_per_shard"):
        write(tmp_path / "a", rows(), maxcount=0)
    with pytest.raises(ConfigError, match="no sample was written"):
        write(tmp_path / "b", [])
    with pytest.raises(ConfigError, match="needs '__key__'"):
        Writer(out=str(tmp_path / "c"), format="webdataset", columns={"txt": "str"})
    with pytest.raises(EncodeTypeError, match="a sample is a dict"):
        write(tmp_path / "d", ["text"])
    with pytest.raises(EncodeError, match="unknown: \\['json'\\]"):
        write(tmp_path / "e", [*rows(), {**rows()[0], "json": 1}])
    write(tmp_path / "g", rows())
    with pytest.raises(OutputExistsError):
        write(tmp_path / "g", rows())
    writer = WebDatasetWriter(str(tmp_path / "f"))
    writer.write(rows()[0])
    writer.finish()
    writer.finish()
    with pytest.raises(WriterError, match="complete"):
        writer.write(rows()[1])
    assert not (tmp_path / "e" / "index.json").exists()


@pytest.mark.parametrize("bad", [{"__key__": "a.b", "json": b"[1]", "jpg": None}, {"cls": "x"}])
@pytest.mark.parametrize("options", [{}, {"exist_ok": True}])
def test_a_first_sample_that_cannot_be_written_sets_no_columns(tmp_path, bad, options):
    with WebDatasetWriter(str(tmp_path / "set"), **options) as writer:
        with pytest.raises(EncodeError):
            writer.write(bad)
        writer.write({"json": {"x": 1}})
        with pytest.raises(EncodeError, match=r"unknown: \['txt'\]"):
            writer.write({"json": {"x": 2}, "txt": "t"})
        writer.write({"json": {"x": 3}})
    found = StreamingDataset(local=str(tmp_path / "set"))
    assert [(s["__key__"], s["json"]) for s in found] == [
        ("000000000", {"x": 1}),
        ("000000001", {"x": 3}),
    ]


def test_samples_are_appended_with_the_columns_of_the_set(tmp_path):
    write(tmp_path / "set", [{"vec": np.ones(2, "f4")}], columns={"vec": "ndarray:float32"})
    write(tmp_path / "set", [{"vec": np.zeros(3, "f4")}], append=True)
    write(tmp_path / "set", [], append=True)
    with pytest.raises(EncodeError, match=r"unknown: \['txt'\]"):
        write(tmp_path / "set", [{"vec": np.ones(2, "f4"), "txt": ""}], append=True)
    found = StreamingDataset(local=str(tmp_path / "set"))
    assert [sample["vec"].tolist() for sample in found] == [[1, 1], [0, 0, 0]]


def test_a_relative_place_is_that_of_the_working_directory_before_the_first_sample(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with WebDatasetWriter("set") as writer:
        (tmp_path / "other").mkdir()
        monkeypatch.chdir("other")
        writer.write({"txt": "a"})
    assert (tmp_path / "set" / "index.json").exists()


def test_an_empty_set_can_be_written(tmp_path):
    write(tmp_path, [], columns={"txt": "str"})
    assert (tmp_path / "index.json").exists()


def test_compressed_archives(tmp_path):
    write(tmp_path, rows(), compression="gz", maxcount=6)
    assert sorted(path.name for path in tmp_path.glob("*.tar.gz")) == [
        "shard.00000.tar.gz",
        "shard.00001.tar.gz",
    ]
    assert list(StreamingDataset(local=str(tmp_path))) == rows()


@pytest.mark.parametrize("length", [85, 96, 97, 150, 1000])
def test_long_names_are_found_again(tmp_path, length):
    samples = [{"__key__": f"{'k' * length}{i}", "txt": "a", "é.bin": b"b"} for i in range(3)]
    write(tmp_path, samples)
    assert list(StreamingDataset(local=str(tmp_path))) == samples
    found = StreamingDataset(remote=str(tmp_path / "*.tar"), format="webdataset")
    assert list(found) == samples
    assert names(tmp_path / "shard.00000.tar")[1] == f"{'k' * length}0.é.bin"


def test_a_misspelt_keyword_is_told_with_the_one_that_was_meant(tmp_path):
    for wrong, meant in (("maxcont", "maxcount"), ("compresion", "compression")):
        with pytest.raises(TypeError, match=rf"^WebDatasetWriter\({wrong}=…\).*mean '{meant}'"):
            WebDatasetWriter(tmp_path / "out", **{wrong: 5})
    assert not (tmp_path / "out").exists()


class Whatever(Str):
    """Stores what it is given, which should be bytes."""

    def encode(self, value):
        return value


def writer_of(encoding):
    columns = [Column("__key__", "str", Str()), Column("x", "any", encoding)]
    return WebDataset().writer(columns, WriteSettings(None, (), None))


def test_a_buffer_that_an_encoding_returns_is_stored_by_its_bytes():
    numbers = np.arange(3, dtype="<f4")
    it = writer_of(Whatever())
    expected = it.encode({"__key__": "a", "x": numbers.tobytes()})
    for value in (memoryview(numbers), numbers, bytearray(numbers.tobytes())):
        assert it.encode({"__key__": "a", "x": value}) == expected
        data, sizes = it.encode_batch({"__key__": ["a"], "x": [value]})
        assert (bytes(data), sizes.tolist()) == (expected, [len(expected)])


@pytest.mark.parametrize("value", ["text", 5, np.float32(1)])
def test_what_an_encoding_returns_instead_of_bytes_is_refused(value):
    it = writer_of(Whatever())
    expected = f"^column 'x': its encoding returned {type(value).__name__}: .*; expected bytes$"
    with pytest.raises(EncodeTypeError, match=expected):
        it.encode({"__key__": "a", "x": value})
    with pytest.raises(EncodeTypeError, match=expected):
        it.encode_batch({"__key__": ["a", "b"], "x": [b"", value]})


def test_an_encoding_that_returns_fewer_values_of_a_batch_is_refused():
    class Omitting(Str):
        def encode_batch(self, values):
            return [value.encode() for value in values if value]

    expected = r"^column 'x': encode_batch of Omitting returned 2 values for 3$"
    with pytest.raises(EncodeError, match=expected):
        writer_of(Omitting()).encode_batch({"__key__": list("abc"), "x": ["a", "", "b"]})
