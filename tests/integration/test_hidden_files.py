"""Hidden files are no data for directories and patterns, in any format and on any storage."""

from __future__ import annotations

import io
import json
import re
import tarfile
import uuid

import pytest
from click.testing import CliRunner

from streamplug import StreamingDataset
from streamplug.cli import main
from streamplug.errors import NotFound
from streamplug.plugin import open_storage

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
for plugin in ("parquet", "text", "tools", "views", "webdataset"):
    pytest.importorskip(f"streamplug_{plugin}")

APPLE = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(50)
"""Start of a file that macOS writes beside each file on disks of others."""


def jsonl(n):
    return b'{"n": %d}\n' % n


def csv(n):
    return b"n\n%d\n" % n


def parquet(n):
    out = io.BytesIO()
    pa.parquet.write_table(pa.table({"n": [n]}), out)
    return out.getvalue()


def webdataset(n):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(f"{n}.json")
        content = json.dumps({"n": n}).encode()
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


FORMATS = {
    "jsonl": (jsonl, "jsonl"),
    "csv": (csv, "csv"),
    "parquet": (parquet, "parquet"),
    "webdataset": (webdataset, "tar"),
}


@pytest.fixture(params=FORMATS)
def kind(request):
    return request.param


@pytest.fixture(params=["near", "far"])
def place(request, tmp_path, kind):
    """The location of a tree of files, of which two are not hidden."""
    if request.param == "far":
        pytest.importorskip("streamplug_fsspec")
    url = str(tmp_path / "set") if request.param == "near" else f"memory://{uuid.uuid4().hex}/set"
    make, suffix = FORMATS[kind]
    storage = open_storage(url)
    storage.write(f"a.{suffix}", make(1))
    storage.write(f"sub/b.{suffix}", make(2))
    for name in (f"._a.{suffix}", f"sub/._b.{suffix}", f".Trash/c.{suffix}", f"sub/.DS.{suffix}"):
        storage.write(name, APPLE)
    for folder in (".ipynb_checkpoints", "sub/.ipynb_checkpoints", "sub/.git/deep"):
        storage.write(f"{folder}/a.{suffix}", make(3))
    return url


def numbers(location, kind):
    dataset = StreamingDataset(remote=location, format=kind)
    values = [dataset[n] for n in range(dataset.size)]
    return [int((value.get("json") or value)["n"]) for value in values]


def test_directories_and_patterns_leave_them_out(place, kind):
    suffix = FORMATS[kind][1]
    assert numbers(place, kind) == [1]
    assert numbers(f"{place}/*", kind) == [1]
    assert numbers(f"{place}/**/*.{suffix}", kind) == [1, 2]
    assert numbers(f"{place}/{{*,sub/*}}.{suffix}", kind) == [1, 2]
    assert numbers([f"{place}/sub/", f"{place}/*.{suffix}"], kind) == [2, 1]


def test_they_are_read_if_they_are_named(place, kind):
    suffix = FORMATS[kind][1]
    assert numbers(f"{place}/.ipynb_checkpoints/a.{suffix}", kind) == [3]
    assert numbers(f"{place}/.ipynb_checkpoints", kind) == [3]
    assert numbers(f"{place}/.i*/*.{suffix}", kind) == [3]
    assert numbers(f"{place}/**/.i*/*.{suffix}", kind) == [3, 3]
    assert numbers(f"{place}/sub/.git/**/*.{suffix}", kind) == [3]
    assert numbers([f"{place}/.ipynb_checkpoints/*", f"{place}/sub/*"], kind) == [3, 2]
    with pytest.raises(NotFound, match=r"hidden files, such as \._a\..*, must be named"):
        numbers(f"{place}/[._]*", kind)


def test_commands_leave_them_out(place, kind, tmp_path):
    def run(*arguments):
        done = CliRunner().invoke(main, list(arguments))
        assert done.exit_code == 0, done.output
        return done.stdout

    assert re.search(r"^samples +1 *$", run("inspect", place), re.MULTILINE)
    run("verify", place)
    files = f"{place}/**/*.{FORMATS[kind][1]}"
    run("convert", files, str(tmp_path / "out"), "--src-format", kind, "--format", "mds")
    assert StreamingDataset(local=str(tmp_path / "out" / "part-00000")).size == 2
    run("index", "scan", place, "--format", kind)
    index = json.loads(open_storage(place).read("index.json"))
    assert [shard["raw_data"]["basename"] for shard in index["shards"]] == [f"a.{FORMATS[kind][1]}"]


def test_views_leave_them_out(place, kind, tmp_path):
    from streamplug import View

    view = View.of(f"{place}/**/*.{FORMATS[kind][1]}", format=kind)
    view.commit(str(tmp_path / "view"))
    assert StreamingDataset(remote=str(tmp_path / "view")).size == 2


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_records_of_spark_and_delta_lake_are_left_out(place, kind):
    make, suffix = FORMATS[kind]
    storage = open_storage(place)
    storage.write("_SUCCESS", b"")
    storage.write(f"_temporary/0/task_0/c.{suffix}", make(4))
    storage.write(f"_spark_metadata/0.{suffix}", make(4))
    storage.write(f"_day=1/d.{suffix}", make(5))
    assert numbers(f"{place}/**/*.{suffix}", kind) == [5, 1, 2]
    assert numbers(f"{place}/_temporary/**/*.{suffix}", kind) == [4]
    storage.write(f"_more.{suffix}", make(6))  # Spark and pyarrow read no such Parquet file
    assert numbers(place, kind) == ([1] if kind == "parquet" else [6, 1])
    assert numbers(f"{place}/_more.{suffix}", kind) == [6]
    assert numbers(f"{place}/_*.{suffix}", kind) == [6]
