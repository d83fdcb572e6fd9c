"""Files that a column names by their paths are refused, or read from a directory that the user names."""

from __future__ import annotations

import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamplug_parquet import FileDirectory

from streamplug import StreamingDataset
from streamplug.builtin.encodings.plain import Bytes
from streamplug.errors import ConfigError, DecodeError

FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class Upper(Bytes):
    """Bytes in upper case."""

    def decode(self, data):
        return bytes(data).upper()


def upper(encoding):
    return Upper()


@pytest.fixture
def folder(tmp_path):
    """A directory with files, beside a secret one."""
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"of a")
    (folder / "sub" / "b").write_bytes(b"of b")
    return folder


def opened(tmp_path, values, decoder, type_=FILE, **options):
    pq.write_table(pa.table({"x": pa.array(values, type_)}), tmp_path / "x.parquet")
    options |= {"batch_size": len(values), "decoders": {"x": decoder}}
    return StreamingDataset(remote=str(tmp_path / "x.parquet"), format="parquet", **options)


def path_only(path):
    return {"bytes": None, "path": str(path)}


VALUES = [
    {"bytes": b"own", "path": "a"},
    path_only("a"),
    None,
    {"bytes": None, "path": None},
    path_only("sub/b"),
    path_only("sub/../a"),
]


def test_paths_without_bytes_are_refused(tmp_path):
    dataset = opened(tmp_path, VALUES, upper)
    assert [dataset[0]["x"], dataset[2]["x"], dataset[3]["x"]] == [b"OWN", None, None]
    message = r"sample 1, column 'x': the value has no bytes, but the path 'a'; .*FileDirectory"
    with pytest.raises(DecodeError, match=message):
        dataset[1]
    with pytest.raises(DecodeError, match=message):
        next(dataset.batches())


@pytest.mark.parametrize(
    "type_", [FILE, None, pa.struct([("path", pa.string()), ("bytes", pa.null())])]
)
def test_columns_of_nothing_but_paths_are_refused(type_, tmp_path, folder):
    """Of such a column, pyarrow infers null as the type of the bytes."""
    values = [path_only("a"), path_only("sub/b")]
    with pytest.raises(DecodeError, match=r"sample 0, column 'x'.* the path 'a'"):
        opened(tmp_path, values, upper, type_)[0]
    dataset = opened(tmp_path, values, FileDirectory(folder, upper), type_)
    assert [sample["x"] for sample in dataset] == [b"OF A", b"OF B"]


def test_columns_without_paths_need_no_directory(tmp_path):
    for type_ in (
        pa.struct({"bytes": pa.binary()}),
        pa.struct([*FILE.fields[:1], ("path", pa.null())]),
    ):
        dataset = opened(tmp_path, [{"bytes": b"own"}, None, {"bytes": None}], upper, type_)
        assert [dataset[n]["x"] for n in range(3)] == [b"OWN", None, None]


def test_without_a_decoder_the_path_is_the_value(tmp_path):
    pq.write_table(pa.table({"x": pa.array(VALUES, FILE)}), tmp_path / "x.parquet")
    dataset = StreamingDataset(remote=str(tmp_path / "x.parquet"), format="parquet", batch_size=1)
    assert dataset[1]["x"] == {"bytes": None, "path": "a"}


def test_paths_are_read_from_the_directory(tmp_path, folder, monkeypatch):
    values = [*VALUES, path_only(folder / "a"), path_only("./sub//b")]
    expected = [b"OWN", b"OF A", None, None, b"OF B", b"OF A", b"OF A", b"OF B"]
    monkeypatch.chdir(tmp_path)
    dataset = opened(tmp_path, values, FileDirectory("files", upper))
    monkeypatch.chdir("/")
    assert [dataset[n]["x"] for n in range(8)] == expected
    assert next(dataset.batches())["x"] == expected
    assert pickle.loads(pickle.dumps(FileDirectory(folder, upper))) == FileDirectory(folder, upper)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../secret", "leads out of the directory"),
        ("sub/../../secret", "leads out of the directory"),
        ("{tmp}/secret", "leads out of the directory"),
        ("/etc/passwd", "leads out of the directory"),
        ("{tmp}/files/../secret", "leads out of the directory"),
        ("{tmp}/files-2/c", "leads out of the directory"),
        ("link", "leads out of the directory"),
        ("linked/secret", "leads out of the directory"),
        ("loop", "names no file|cannot be read"),
        ("sub", "names no file"),
        (".", "names no file"),
        ("", "names no file"),
        ("missing", "names no file"),
        ("a/b", "names no file"),
        ("pipe", "names no file"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("file:///etc/passwd", "is a URL"),
        ("https://host/a", "is a URL"),
        ("s3://bucket/a", "is a URL"),
        ("zip://a::files.zip", "is a URL"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(path, message, tmp_path, folder):
    (tmp_path / "files-2").mkdir()
    (tmp_path / "files-2" / "c").write_bytes(b"c")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    values = [path_only("a"), path_only(path.format(tmp=tmp_path))]
    dataset = opened(tmp_path, values, FileDirectory(folder, upper))
    assert dataset[0]["x"] == b"OF A"
    with pytest.raises(DecodeError, match=f"sample 1, column 'x': .*({message})") as caught:
        dataset[1]
    assert str(caught.value).count("of a file without bytes") == 1
    assert len(str(caught.value)) < 1000
    with pytest.raises(DecodeError, match=f"sample 1, column 'x': .*({message})"):
        next(dataset.batches())


def test_links_within_the_directory_are_followed(tmp_path, folder):
    (folder / "link").symlink_to(folder / "sub")
    (tmp_path / "alias").symlink_to(folder)
    for place in (folder, tmp_path / "alias"):
        dataset = opened(tmp_path, [path_only("link/b")], FileDirectory(place, upper))
        assert dataset[0]["x"] == b"OF B"


def test_bad_samples_can_be_substituted(tmp_path, folder):
    values = [path_only("a"), path_only("../secret"), path_only("sub/b")]
    decoder = FileDirectory(folder, upper)
    dataset = opened(tmp_path, values, decoder, on_error="substitute", max_errors=1)
    assert b"SECRET" not in [sample["x"] for sample in dataset]


def test_what_is_no_directory_or_no_column_of_files_is_refused(tmp_path, folder):
    for path in (folder / "a", folder / "missing", "s3://bucket/files"):
        with pytest.raises(ConfigError, match="expected a directory on this machine"):
            FileDirectory(path, upper)
    with pytest.raises(
        ConfigError, match=r"column 'x'.*takes columns of structs of bytes and a path"
    ):
        opened(tmp_path, ["a"], FileDirectory(folder, upper), pa.string())
