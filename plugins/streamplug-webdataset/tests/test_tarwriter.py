from __future__ import annotations

import gzip
import io
import logging
import pickle
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from streamplug_webdataset import ShardWriter, TarWriter, WebDataset

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, CorruptShardError, EncodeError, WriterError


def rows(count=10):
    return [{"__key__": f"{n:04d}", "cls": n, "txt": f"text {n}"} for n in range(count)]


def read(path):
    return list(StreamingDataset(remote=str(path), format="webdataset"))


def test_archives_have_the_numbers_and_limits_that_are_asked_for(tmp_path, caplog):
    done = []
    with (
        caplog.at_level(logging.INFO, "streamplug"),
        ShardWriter(
            f"{tmp_path}/x-%06d.tar", maxcount=4, start_shard=7, post=done.append, verbose=1
        ) as out,
    ):
        for row in rows():
            out.write(row)
    assert done == [f"{tmp_path}/x-{n:06d}.tar" for n in (7, 8, 9)]
    assert [len(read(path)) for path in done] == [4, 4, 2]
    assert read(tmp_path) == rows()
    assert (out.total, len(caplog.records)) == (10, 3)
    out.close()
    with pytest.raises(WriterError, match="are complete"):
        out.write(rows()[0])


def test_an_archive_that_was_given_up_is_not_passed_on(tmp_path):
    done = []
    out = ShardWriter(f"{tmp_path}/x-%d.tar", maxcount=2, post=done.append)
    with suppress(KeyError), out:
        for row in rows(3):
            out.write(row)
        raise KeyError
    out.close()
    assert done == [f"{tmp_path}/x-0.tar"]
    with pytest.raises(WriterError, match="are complete"):
        out.write(rows()[0])


def test_archives_are_limited_in_size(tmp_path):
    with ShardWriter(f"{tmp_path}/x-%d.tar", maxsize=20) as out:
        for row in rows():  # of 7 bytes each
            out.write(row)
            assert out.size == 7 * out.count
    assert [len(read(path)) for path in sorted(tmp_path.iterdir())] == [3, 3, 3, 1]


def test_a_writer_that_is_given_nothing_leaves_nothing(tmp_path):
    with ShardWriter(f"{tmp_path}/x-%d.tar"):
        pass
    assert not list(tmp_path.iterdir())


def test_samples_may_differ_in_their_extensions(tmp_path):
    with TarWriter(str(tmp_path / "a.tar")) as out:
        size = out.write({"__key__": "a", "npy": np.arange(3), "_note": "x", "__url__": "y"})
        out.write({"__key__": "b", "json": [1], "txt": None, "cls": "7", "caption": "é"})
    first, second = read(tmp_path)
    assert size == 152
    assert first["npy"].tolist() == [0, 1, 2]
    assert (second["json"], second["npy"], second["cls"]) == ([1], None, 7)
    assert second["caption"].decode() == "é"


def test_samples_of_a_pipeline_are_written_with_their_metadata(tmp_path):
    with TarWriter(str(tmp_path / "a.tar")) as out:
        out.write({"__key__": "a", "txt": "text"})
    with TarWriter(str(tmp_path / "b.tar"), keep_meta=True) as out:
        for sample in WebDataset(str(tmp_path / "a.tar"), shardshuffle=False):
            out.write({**sample, "_note": "kept"})
    (found,) = WebDataset(str(tmp_path / "b.tar"), shardshuffle=False)
    assert found["__url__"].endswith("b.tar")
    assert {**found, "__url__": ""} == {
        "__key__": "a",
        "__url__": "",
        "_note": b"kept",
        "txt": b"text",
    }


def test_text_is_written_as_it_is(tmp_path):
    names = ["cls", "json", "x.jsn", "txt", "jpg", "npy", "pyd", "bin", "json.gz"]
    with TarWriter(tmp_path / "a.tar") as out:
        size = out.write({"__key__": "a"} | dict.fromkeys(names, '{"n": é}'))
    with tarfile.open(tmp_path / "a.tar") as tar:
        stored = {member.name: tar.extractfile(member).read() for member in tar}
    assert size == sum(map(len, stored.values()))
    stored["a.json.gz"] = gzip.decompress(stored["a.json.gz"])
    assert stored == {f"a.{name}": '{"n": é}'.encode() for name in names}


def test_none_is_written_where_it_can_be_encoded(tmp_path):
    with TarWriter(tmp_path / "a.tar") as out:
        out.write({"__key__": "a", "json": None, "x.jsn": None, "pyd": None, "cls": None})
    with tarfile.open(tmp_path / "a.tar") as tar:
        stored = {member.name: tar.extractfile(member).read() for member in tar}
    assert stored == {"a.json": b"null", "a.x.jsn": b"null", "a.pyd": pickle.dumps(None)}


def test_functions_by_extension_encode_what_is_neither_bytes_nor_text(tmp_path):
    functions = {"jpg": bytes, "n": str, "x.n": lambda value: f"<{value}>"}
    sample = {"left.jpg": [1, 2], "jpg": b"\3", "n": "text", "a.n": 4, "x.n": 5, "b.n.gz": 6}
    with TarWriter(tmp_path / "a.tar", encoder=functions) as out:
        out.write({"__key__": "a", **sample})
        with pytest.raises(EncodeError, match="expected bytes, got int"):
            out.write({"__key__": "b", "other": 1})
    with tarfile.open(tmp_path / "a.tar") as tar:
        stored = {member.name[2:]: tar.extractfile(member).read() for member in tar}
    stored["b.n.gz"] = gzip.decompress(stored["b.n.gz"])
    expected = {"left.jpg": b"\1\2", "jpg": b"\3", "n": b"text"}
    assert stored == {**expected, "a.n": b"4", "x.n": b"<5>", "b.n.gz": b"6"}


@pytest.mark.parametrize("encoder", [False, None, {"cls": str}, lambda s: {**s, "cls": b"1"}])
def test_values_are_encoded_as_one_says(tmp_path, encoder):
    value = 1 if encoder else b"1"
    with TarWriter(tmp_path / "a.tar", encoder=encoder) as out:
        out.write({"__key__": "a", "cls": value})
    assert read(tmp_path)[0]["cls"] == 1


@pytest.mark.parametrize(
    ("name", "compress", "kind"),
    [
        ("a.tar.gz", None, "gz"),
        ("a.tgz", None, "gz"),
        ("a.tar.bz2", None, "bz2"),
        ("a", "xz", "xz"),
        ("a.tar.gz", False, ""),
        ("b", True, "gz"),
    ],
)
def test_archives_are_compressed_and_have_the_same_bytes(tmp_path, name, compress, kind):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        with TarWriter(str(tmp_path / folder / name), compress=compress, mtime=3) as out:
            for row in rows(3):
                out.write(row)
    with tarfile.open(tmp_path / "one" / name, f"r:{kind}") as tar:
        assert {member.mtime for member in tar} == {3}
        assert len(tar.getnames()) == 6
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_files_that_are_open_are_written_to(tmp_path):
    files = {}

    def opener(name):
        files[name] = io.BytesIO()
        return files[name]

    with ShardWriter("x-%d.tar", maxcount=2, opener=opener) as out:
        for row in rows(4):
            out.write(row)
    assert list(files) == ["x-0.tar", "x-1.tar"]
    assert not any(file.closed for file in files.values())
    (tmp_path / "a.tar").write_bytes(files["x-1.tar"].getvalue())
    assert read(tmp_path) == rows(4)[2:]


@pytest.mark.parametrize("compress", [False, "gz"])
def test_archives_in_open_files_are_complete_when_they_are_posted(tmp_path, compress):
    opened, posted = [], {}

    def opener(name):
        opened.append(open(name, "wb"))  # noqa: PTH123, SIM115 - closed below
        return opened[-1]

    def post(name):
        posted[name] = Path(name).read_bytes()

    options = {"maxcount": 2, "opener": opener, "post": post, "compress": compress}
    with ShardWriter(f"{tmp_path}/x-%d", **options) as out:
        for row in rows(4):
            out.write(row)
    for file in opened:
        file.close()
    assert len(posted) == 2
    assert all(Path(name).read_bytes() == data for name, data in posted.items())


def test_an_archive_that_was_left_in_the_middle_is_not_taken_for_whole(tmp_path):
    with pytest.raises(KeyError), ShardWriter(f"{tmp_path}/x-%d.tar") as out:  # noqa: PT012
        out.write(rows()[0])
        raise KeyError
    with pytest.raises(CorruptShardError, match="cut short"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"cls": 1}, "needs a '__key__'"),
        ({"__key__": "a.b", "cls": 1}, "must not have a dot"),
        ({"__key__": "0000", "cls": 1}, "is that of the sample before"),
        ({"__key__": "a"}, "has no values"),
        ({"__key__": "a", "jpg": 3}, "'jpg': expected the bytes of an image file"),
        ({"__key__": "a", "bin": 3}, "expected bytes, got int"),
        ({"__key__": "a", "cls": 2.5}, "cls"),
        ({"__key__": "a", "txt": "\ud800"}, "'txt': .* UTF-8"),
        ({"__key__": "a", "CLS": b"1"}, "lower case"),
    ],
)
def test_what_readers_would_not_find_again_is_refused(tmp_path, sample, message):
    with TarWriter(tmp_path / "a.tar") as out:
        out.write(rows()[0])
        with pytest.raises(EncodeError, match=message):
            out.write(sample)
    assert read(tmp_path) == rows(1)


def test_a_value_that_needs_another_package_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug_webdataset.extensions.is_known", lambda *_: False)
    with (
        TarWriter(tmp_path / "a.tar") as out,
        pytest.raises(
            EncodeError, match="'mp': expected bytes, got dict; install streamplug-msgpack"
        ),
    ):
        out.write({"__key__": "a", "mp": {"a": 1}})


def test_arguments_without_a_meaning_are_refused(tmp_path):
    for wrong in (
        lambda: TarWriter("s3://bucket/a.tar"),
        lambda: TarWriter("pipe:cat > a.tar"),
        lambda: TarWriter(tmp_path / "a.tar", format="pax"),
        lambda: TarWriter(tmp_path / "a.tar", mode=0o10000),
        lambda: TarWriter(tmp_path / "a.tar", user="x" * 32),
        lambda: TarWriter(tmp_path / "a.tar", mtime=-1.5),
        lambda: TarWriter(tmp_path / "a.tar", mtime=8**11),
        lambda: TarWriter(tmp_path / "a.tar", compress="zip"),
        lambda: TarWriter(tmp_path / "a.tar", encoder=3),
        lambda: TarWriter(tmp_path / "a.tar", mtime=float("nan")),
        lambda: TarWriter(tmp_path / "a.tar", mtime=True),
        lambda: ShardWriter("x-%d.tar", maxsize=float("nan")),
        lambda: ShardWriter("x-%d.tar", compress="zip"),  # before there is a sample
        lambda: ShardWriter("x-%d.tar", mode=-1),
        lambda: ShardWriter("x.tar"),
        lambda: ShardWriter("x-%d-%d.tar"),
        lambda: ShardWriter("x-%d.tar", maxcount=0),
        lambda: ShardWriter("x-%d.tar", maxsize=-1),
        lambda: ShardWriter("x-%d.tar", start_shard=-1),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_file_urls_name_local_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ShardWriter("file:x-%d.tar", maxcount=5) as out:
        for row in rows():
            out.write(row)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x-0.tar", "x-1.tar"]
    urls = ("file:x-{0..1}.tar", "file:x-0.tar::file:x-1.tar", f"file:{tmp_path}/x-{{0..1}}.tar")
    for url in (*urls, ["file:x-0.tar", "x-1.tar"], f"file://{tmp_path}/x-{{0..1}}.tar"):
        assert [sample["__key__"] for sample in WebDataset(url)] == [r["__key__"] for r in rows()]


def test_a_dash_is_the_standard_output(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    with TarWriter("-") as out:
        out.write(rows(1)[0])
    data = capfdbinary.readouterr().out
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["0000.cls", "0000.txt"]
    assert not list(tmp_path.iterdir())


def test_webp_files_keep_the_colours_of_transparent_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    pixels[:4, :, 3] = 0
    with TarWriter(tmp_path / "a.tar") as out:
        out.write({"__key__": "a", "webp": pixels})
    (sample,) = WebDataset(str(tmp_path / "a.tar"), shardshuffle=False).decode("rgba8")
    assert (sample["webp"] == pixels).all()


@pytest.mark.parametrize("sample", [[1], b"bytes", None, {"__key__": "a", 5: b"x"}])
def test_what_is_no_sample_is_refused_by_name(sample):
    with TarWriter(io.BytesIO()) as out, pytest.raises(EncodeError, match="a sample is a dict of"):
        out.write(sample)
