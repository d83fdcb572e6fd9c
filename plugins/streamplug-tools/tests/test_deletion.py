from __future__ import annotations

import json

import pytest
from streamplug_tools import delete

from streamplug import StreamingDataset, Writer, merge_index, write_parts
from streamplug.errors import ConfigError, InvalidIndexError, NotFound, WriterError
from streamplug.plugin import open_storage


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_only_files_of_the_data_set_are_removed(tmp_path, write):
    source = write(tmp_path / "source", range(100))
    files = names(source)
    for name in ("notes.txt", "shard.99999.mds", "part-00000/shard.00000.mds"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("mine")
    others = sorted(set(names(source)) - set(files))
    planned = delete(source)
    assert (planned.removed, sorted(planned.files), sorted(planned.kept)) == (False, files, others)
    assert planned.bytes == sum((source / name).stat().st_size for name in files)
    assert len(names(source)) == len(files) + 3
    done = delete(source, dry_run=False)
    assert (done.removed, sorted(done.files)) == (True, files)
    assert names(source) == others
    with pytest.raises(NotFound, match=r"neither an index\.json nor a parts\.json"):
        delete(source, dry_run=False)


def test_parts_and_merged_data_sets_are_removed_with_their_folders(tmp_path, write):
    write_parts(
        lambda part: [{"n": part}], range(3), columns={"n": "int"}, out=tmp_path / "a", processes=0
    )
    delete(tmp_path / "a", dry_run=False)
    assert not (tmp_path / "a").exists()
    for year in ("2025", "2026"):
        write(tmp_path / "years" / year, range(20))
    merge_index(str(tmp_path / "years"))
    delete(tmp_path / "years", dry_run=False)
    assert not (tmp_path / "years").exists()


def test_an_unfinished_data_set_is_removed(tmp_path):
    def make(part):
        if part == 2:
            raise ValueError("bad")
        yield {"n": part}

    far = f"memory://{tmp_path.name}/unfinished"
    for place in (str(tmp_path / "out"), far):
        with pytest.raises(WriterError):
            write_parts(make, range(3), columns={"n": "int"}, out=place, processes=0)
        storage = open_storage(place)
        storage.write("part-00007/shard.00000.mds", b"of somebody else")
        storage.write("part-00001/notes.txt", b"mine")
        result = delete(place, dry_run=False)
        kept = ["part-00001/notes.txt", "part-00007/shard.00000.mds"]
        assert sorted(result.kept) == kept
        assert sorted(info.key for info in storage.list("")) == kept


def test_what_is_being_written_is_not_removed(tmp_path, write):
    place = write(tmp_path / "set", range(20), {"id": "int"})
    before = names(place)
    with Writer(columns={"id": "int"}, out=place, append=True) as writer:
        writer.write({"id": 20})
        with pytest.raises(ConfigError, match="set is being written by another process"):
            delete(place, dry_run=False)
        assert set(before) <= set(delete(place).files)

    def make(part):
        yield {"n": part}
        for out in (tmp_path / "parts", f"memory://{tmp_path.name}/parts"):
            if open_storage(str(out)).exists("parts.json"):
                with pytest.raises(ConfigError, match="parts is being written by another process"):
                    delete(out, dry_run=False)

    for out in (tmp_path / "parts", f"memory://{tmp_path.name}/parts"):
        write_parts(make, range(3), columns={"n": "int"}, out=out, processes=0)
        delete(out, dry_run=False)


def test_nothing_is_removed_where_no_index_names_files(tmp_path, write):
    source = write(tmp_path / "source", range(20))
    before = names(source)
    (source / "index.json").write_text("{")
    with pytest.raises(InvalidIndexError):
        delete(source, dry_run=False)
    (source / "index.json").write_text(json.dumps({"chunks": [], "config": {}}))
    with pytest.raises(InvalidIndexError):
        delete(source, dry_run=False)
    assert names(source) == before
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(ConfigError, match="is a Delta table"):
        delete(tmp_path / "table", dry_run=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "parts.json").write_text("[]")
    with pytest.raises(NotFound):
        delete(tmp_path / "mine", dry_run=False)
    shard = tmp_path / "mine" / "part-00000" / "shard.00000.mds"
    shard.parent.mkdir()
    shard.write_text("mine")
    (tmp_path / "mine" / "parts.json").write_text(json.dumps({"parts": 3, "of": "a wheel"}))
    with pytest.raises(NotFound, match="of streamplug"):
        delete(tmp_path / "mine", dry_run=False)
    (write(tmp_path / "set", range(20)) / "index.json").rename(tmp_path / "mine" / "index.json")
    with pytest.raises(ConfigError, match=r"parts\.json is damaged, or no file of streamplug"):
        delete(tmp_path / "mine", dry_run=False)
    assert names(tmp_path / "mine") == ["index.json", "part-00000/shard.00000.mds", "parts.json"]


def test_files_behind_links_stay(tmp_path, write):
    source = write(tmp_path / "elsewhere" / "part", range(20))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "part").symlink_to(source, target_is_directory=True)
    merge_index([str(tmp_path / "set" / "part")], str(tmp_path / "set"))
    before = names(source)
    delete(tmp_path / "set", dry_run=False)
    assert names(source) == before
    assert len(StreamingDataset(local=str(source))) == 20
