from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamplug_fsspec import MemoryStorage
from streamplug_tools import Output, convert, copy_files

from streamplug import StreamingDataset, write_parts
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    HashMismatchError,
    NotFound,
    OutputExistsError,
)
from streamplug.plugin import open_storage


@pytest.mark.parametrize("compression", [None, "gz"])
def test_a_copy_between_storages_has_the_same_bytes(tmp_path, write, compression):
    source = write(tmp_path / "source", range(100), compression=compression)
    far, back = f"memory://{tmp_path.name}-{compression}/set", tmp_path / "back"
    there = copy_files(source, far)
    here = copy_files(far, back)
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    assert {path.name: path.read_bytes() for path in back.iterdir()} == files
    assert {info.key for info in open_storage(far).list("")} == files.keys()
    assert there.copied == there.files == here.files == len(files) - 1
    assert there.bytes == sum(map(len, files.values())) - len(files["index.json"])
    assert copy_files(source, far).copied == 0


def test_the_parts_of_a_data_set_are_copied_without_their_plans(tmp_path):
    write_parts(
        lambda part: [{"n": part}],
        range(3),
        columns={"n": "int"},
        out=tmp_path / "source",
        processes=0,
    )
    (tmp_path / "source" / "notes.txt").write_text("mine")
    copy_files(tmp_path / "source", tmp_path / "out")
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in tmp_path.glob("out/**/*.*"))
    assert found == ["index.json", *(f"part-0000{n}/shard.00000.mds" for n in range(3))]
    assert [sample["n"] for sample in StreamingDataset(local=str(tmp_path / "out"))] == [0, 1, 2]


def test_only_missing_files_are_copied(tmp_path, write):
    source = write(tmp_path / "source", range(100))
    shard = source / "shard.00001.mds"
    data = shard.read_bytes()
    shard.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(HashMismatchError, match=r"shard\.00001\.mds has xxh3_64"):
        copy_files(source, tmp_path / "out", num_threads=1)
    assert (tmp_path / "out" / "shard.00000.mds").exists()
    assert not (tmp_path / "out" / "index.json").exists()
    shard.write_bytes(data[:-1])
    with pytest.raises(CorruptShardError, match=r"shard\.00001\.mds has"):
        copy_files(source, tmp_path / "out", num_threads=1)
    shard.unlink()
    with pytest.raises(NotFound, match="the index names it"):
        copy_files(source, tmp_path / "out", num_threads=1)
    shard.write_bytes(data)
    result = copy_files(source, tmp_path / "out", num_threads=1)
    assert 0 < result.copied < result.files


def test_files_that_a_copy_has_lost_are_copied_again(tmp_path, write):
    source, out = write(tmp_path / "source", range(100)), tmp_path / "out"
    copy_files(source, out)
    (out / "shard.00001.mds").unlink()
    (out / "shard.00002.mds").write_bytes(b"cut short")
    assert copy_files(source, out).copied == 2
    assert [sample["id"] for sample in StreamingDataset(local=str(out))] == list(range(100))
    assert not (out / "parts.json").exists()


def test_an_unfinished_copy_is_read_by_nobody_and_can_be_replaced(tmp_path, write):
    source = write(tmp_path / "source", range(100))
    last = max(source.glob("shard.*"))
    data = last.read_bytes()
    last.unlink()
    with pytest.raises(NotFound):
        copy_files(source, tmp_path / "out", num_threads=1)
    with pytest.raises(NotFound, match="has not finished"):
        StreamingDataset(remote=str(tmp_path / "out"), batch_size=1)
    last.write_bytes(data)
    other = write(tmp_path / "other", range(50))
    with pytest.raises(OutputExistsError, match="an unfinished data set that is no copy of this"):
        copy_files(other, tmp_path / "out")
    with pytest.raises(OutputExistsError, match="it is an unfinished copy of another one"):
        convert(other, Output(tmp_path / "out", processes=0))
    convert(other, Output(tmp_path / "out", processes=0, exist_ok=True))
    assert len(StreamingDataset(local=str(tmp_path / "out"))) == 50


def test_other_data_sets_and_files_are_not_overwritten(tmp_path, write):
    source, other = (write(tmp_path / name, range(n)) for name, n in (("a", 20), ("b", 30)))
    with pytest.raises(OutputExistsError, match="already holds another data set"):
        copy_files(source, other)
    with pytest.raises(ConfigError, match="is the source"):
        copy_files(source, f"{source}/")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"other files, such as 'notes\.txt'"):
        copy_files(source, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_one_url_at_two_endpoints_is_two_places(tmp_path, write, monkeypatch):
    place = f"memory://{tmp_path.name}/set"
    write(place, range(20))
    with pytest.raises(ConfigError, match="is the source"):
        copy_files(place, place)
    endpoints = property(lambda storage: storage._options.get("endpoint_url", ""))
    monkeypatch.setattr(MemoryStorage, "endpoint", endpoints, raising=False)
    # Both endpoints have the same files here, so the copy is whole.
    assert copy_files(place, place, storage_options={"endpoint_url": "http://b"}).copied == 0


def test_what_has_no_index_of_its_own_is_refused_by_name(tmp_path, write):
    out = tmp_path / "out"
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(NotFound, match="but files of the format csv"):
        copy_files(lines, out)
    for folder, name in (("_delta_log", "Delta"), ("metadata", "Iceberg")):
        (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / folder / "0.json").write_text("{}")
        with pytest.raises(ConfigError, match=f"is a {name} table"):
            copy_files(tmp_path / name, out)
    (tmp_path / "lit").mkdir()
    (tmp_path / "lit" / "index.json").write_text(json.dumps({"chunks": [], "config": {}}))
    with pytest.raises(ConfigError, match="an index of the format litdata"):
        copy_files(tmp_path / "lit", out)
    view = pytest.importorskip("streamplug_views").View
    view.of(str(write(tmp_path / "source", range(10)))).where("id > 3").commit(str(tmp_path / "v"))
    with pytest.raises(ConfigError, match="is a view"):
        copy_files(tmp_path / "v", out)
    with pytest.raises(NotFound, match="there is no data set"):
        copy_files(tmp_path / "none", out)
    assert not Path(out).exists()
