"""`CloudUploader`, `CloudDownloader` and `merge_index` over paths and URLs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from streamplug_mosaic import CloudDownloader, CloudUploader, merge_index

from streamplug.errors import ConfigError, NotFound, OutputExistsError
from streamplug.plugin import open_storage


@pytest.fixture(params=["path", "url"])
def remote(request, tmp_path):
    """Return an empty remote: a local directory, or one in memory."""
    return str(tmp_path / "far") if request.param == "path" else f"memory://{uuid.uuid4().hex}/far"


@pytest.fixture
def local(tmp_path):
    return tmp_path / "near"


@pytest.mark.parametrize("keep_local", [False, True])
def test_files_are_uploaded_and_downloaded(remote, local, tmp_path, keep_local):
    uploader = CloudUploader.get((str(local), remote), keep_local=keep_local)
    assert (uploader.local, uploader.remote) == (str(local), remote)
    (local / "part").mkdir()
    (local / "part" / "file").write_text("text")
    uploader.upload_file("part/file")
    assert (local / "part" / "file").exists() == keep_local
    copy = tmp_path / "copies" / "file"
    CloudDownloader.direct_download(f"{remote}/part/file", str(copy))
    assert copy.read_text() == "text"


def test_a_file_uploaded_to_itself_is_kept(local):
    uploader = CloudUploader.get((str(local), f"file://{local}"))
    (local / "file").write_text("text")
    uploader.upload_file("file")
    assert (local / "file").read_text() == "text"


def test_without_a_remote_nothing_is_uploaded(local):
    uploader = CloudUploader.get(str(local))
    (local / "file").write_text("text")
    uploader.upload_file("file")
    assert uploader.remote is None
    assert uploader.list_objects() == [str(local / "file")]
    uploader.clear_local(str(local / "file"))
    assert uploader.list_objects() == []


def test_a_url_has_a_temporary_local_directory():
    uploader = CloudUploader.get(f"memory://{uuid.uuid4().hex}/far")
    Path(uploader.local, "file").write_text("text")
    uploader.upload_file("file")
    assert not list(Path(uploader.local).iterdir())
    assert uploader.list_objects() == ["far/file"]
    assert uploader.list_objects("other") == []


def test_files_of_a_local_remote_are_those_of_the_local_directory(local, tmp_path):
    uploader = CloudUploader.get((str(local), str(tmp_path / "far")), keep_local=True)
    for name in ("b", "a"):
        (local / name).touch()
    assert uploader.list_objects() == [str(local / "a"), str(local / "b")]
    assert uploader.list_objects("b") == [str(local / "b")]


def test_a_local_directory_with_files_is_refused_unless_it_may_exist(local):
    local.mkdir()
    (local / "file").touch()
    with pytest.raises(OutputExistsError, match="Directory is not empty"):
        CloudUploader.get(str(local))
    assert CloudUploader.get(str(local), exist_ok=True).list_objects() == [str(local / "file")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": ()}, r"Invalid `out` argument \(\)"),
        ({"out": ("a", "b", "c")}, "Invalid `out` argument"),
        ({"out": ("a", None)}, "Invalid Cloud provider prefix: None"),
        ({"out": "nowhere://bucket"}, "Invalid Cloud provider prefix: .*nowhere"),
        ({"out": "a", "progress_bar": True}, "progress_bar=True"),
    ],
)
def test_invalid_arguments_of_an_uploader_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        CloudUploader.get(**arguments)


def test_a_file_that_exists_is_not_downloaded(local):
    local.write_text("text")
    CloudDownloader.get().download("memory://bucket/missing", str(local))
    assert local.read_text() == "text"


def test_a_download_needs_a_remote_with_the_file(local):
    with pytest.raises(ConfigError, match="path to its remote must be provided"):
        CloudDownloader.get().download(None, str(local))
    with pytest.raises(NotFound):
        CloudDownloader.direct_download(f"memory://{uuid.uuid4().hex}/missing", str(local))
    with pytest.raises(ConfigError, match="Invalid Cloud provider prefix"):
        CloudDownloader.get("nowhere://bucket")


@pytest.fixture
def parts(streaming, tmp_path):
    """Return the indexes of two parts of one data set."""
    folders = [tmp_path / "set" / name for name in ("a", "b")]
    for folder in folders:
        with streaming.MDSWriter(out=str(folder), columns={"n": "int"}) as out:
            out.write({"n": 1})
    return [folder / "index.json" for folder in folders]


def count_shards(folder):
    return len(json.loads((folder / "index.json").read_bytes())["shards"])


def test_parts_are_found_on_this_machine_first(parts, tmp_path):
    pairs = [(str(part), f"s3://bucket/{part.parent.name}/index.json") for part in parts]
    merge_index(pairs, str(tmp_path / "set"))
    assert count_shards(tmp_path / "set") == 2


def test_a_merged_index_is_not_kept(parts, tmp_path):
    out = tmp_path / "set"
    merge_index(list(map(str, parts)), str(out), keep_local=False)
    merge_index(str(out), keep_local=False)
    assert sorted(path.name for path in out.iterdir()) == ["a", "b"]


def test_a_merged_index_is_kept_in_the_remote(parts, tmp_path):
    out = tmp_path / "set"
    remote = f"memory://{uuid.uuid4().hex}/set"
    merge_index(list(map(str, parts)), (str(out), remote), keep_local=False)
    assert not (out / "index.json").exists()
    assert len(json.loads(open_storage(remote).read("index.json"))["shards"]) == 2


def test_a_part_without_an_index_is_a_runtime_error(parts, tmp_path):
    missing = str(tmp_path / "set" / "c" / "index.json")
    with pytest.raises(RuntimeError, match=r"Failed to download index\.json"):
        merge_index([missing], str(tmp_path / "set"))
    with pytest.raises(FileNotFoundError, match="Check data availability!"):
        merge_index([(missing, "")], str(tmp_path / "set"))
    remote = f"memory://{uuid.uuid4().hex}/set"
    with pytest.raises(RuntimeError, match=r"Failed to download index\.json"):
        merge_index([f"{remote}/c/index.json"], (str(tmp_path / "set"), remote))
