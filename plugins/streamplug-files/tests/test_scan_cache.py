from __future__ import annotations

import json
import os
import shutil
import threading

import numpy as np
import pytest
from streamplug_files import ScannableFormat, ScanResult
from streamplug_files import scan_cache as derived
from streamplug_files import scanner as scanning
from streamplug_files.glob import FileSet
from streamplug_files.scan_cache import read_with_digest

from streamplug import Stream, StreamingDataset, register_format
from streamplug.cache.user_cache import source_cache_dir
from streamplug.errors import (
    CacheConflictError,
    ConfigError,
    CorruptShardError,
    InvalidIndexError,
    NotFound,
)
from streamplug.interfaces import Column, ShardReader
from streamplug.plugin.location import open_storage
from streamplug.plugin.registry import unregister


class Bytes(ScannableFormat):
    """Every byte of a file is a sample."""

    suffix = "raw"
    roles = ("data", "count")

    def columns(self, entry, make_encoding):
        return (Column("byte", "uint8", make_encoding("byte", "uint8")),)

    def scan(self, file):
        content = file.read(0, file.size)
        if b"!" in content:
            raise CorruptShardError(f"byte {content.index(b'!')} is damaged")
        notes = {"there are blanks": f"at {content.index(b' ')}"} if b" " in content else {}
        entry = {"format": "bytes-as-samples", "version": 2, "kind": content[:1].isupper()}
        return ScanResult(file.size, entry, {"count": str(file.size).encode()}, notes)

    def open(self, shard, files, columns):
        assert int(bytes(files["count"])) == shard.samples
        return Reader(files["data"])


class Reader(ShardReader):
    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def row(self, index, columns):
        return {"byte": int(self._data[index])}

    def take(self, rows, columns):
        return [np.asarray(self._data)[rows]]


@pytest.fixture(autouse=True)
def _registered():
    register_format("bytes-as-samples", Bytes)
    yield
    unregister("format", "bytes-as-samples")


@pytest.fixture
def looked(monkeypatch):
    """Return a list that gets the name of each file that is looked through."""
    names, really = [], scanning._open_source

    def opened(found, *rest):
        names.append(found.stored.key)
        return really(found, *rest)

    monkeypatch.setattr(scanning, "_open_source", opened)
    return names


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "set").mkdir()
    for name, content in (("a", b"abc"), ("b", b"de"), ("c", b"fghi")):
        (tmp_path / "set" / f"{name}.raw").write_bytes(content)
    return tmp_path / "set"


def scans(folder):
    """Return where what was found in the files of a folder is kept."""
    return source_cache_dir(str(folder)) / ".streamplug" / "scan"


def text(folder, **options):
    dataset = StreamingDataset(remote=str(folder), format="bytes-as-samples", **options)
    return bytes(sample["byte"] for sample in dataset).decode()


def test_files_without_an_index_are_a_data_set(folder, looked, tmp_path):
    assert text(folder) == "abcdefghi"
    assert text(folder / "[bc].raw") == "defghi"
    assert text(folder, local=str(tmp_path / "cache")) == "abcdefghi"
    assert sorted(looked) == [
        "a.raw",
        "a.raw",
        "b.raw",
        "b.raw",
        "c.raw",
        "c.raw",
    ]  # once per place
    assert text(folder, local=str(tmp_path / "cache")) == "abcdefghi"
    assert len(looked) == 6


def test_files_that_local_names_are_read_where_they_are(folder):
    before = sorted(folder.iterdir())
    for name, content in (("a.raw", "abc"), ("{b,c}.raw", "defghi"), ("[bc].raw", "defghi")):
        place = str(folder / name)
        for options in ({"local": place}, {"local": place, "remote": place}):
            dataset = StreamingDataset(**options, format="bytes-as-samples")
            assert bytes(sample["byte"] for sample in dataset).decode() == content
    assert sorted(folder.iterdir()) == before
    with pytest.raises(ConfigError, match="must be a path on this machine"):
        StreamingDataset(local="s3://bucket/*.raw", format="bytes-as-samples")


def test_a_link_to_nothing_is_named_as_a_missing_file(folder):
    for name in ("d.raw", "d.raw.gz"):
        (folder / name).symlink_to("nowhere")
        with pytest.raises(NotFound, match=rf"set/{name} does not exist"):
            text(folder)
        (folder / name).unlink()


def test_a_file_written_again_with_its_size_is_noticed_by_a_cache(folder, tmp_path):
    near = tmp_path / "near"
    assert text(folder, local=str(near)) == "abcdefghi"
    assert text(folder, local=str(near)) == "abcdefghi"
    (folder / "b.raw").write_bytes(b"yz")
    os.utime(folder / "b.raw", (1, 1))
    with pytest.raises(CacheConflictError, match=rf"{folder} was written again since"):
        text(folder, local=str(near))
    shutil.rmtree(near)
    assert text(folder, local=str(near)) == "abcyzfghi"


def test_a_cache_whose_record_has_no_versions_of_files_gets_them(folder, tmp_path):
    origin = tmp_path / "near" / ".streamplug" / "origin.json"
    assert text(folder, local=str(tmp_path / "near")) == "abcdefghi"
    record = json.loads(origin.read_text())
    origin.write_text(json.dumps({key: record[key] for key in record if key != "versions"}))
    assert text(folder, local=str(tmp_path / "near")) == "abcdefghi"
    assert json.loads(origin.read_text()) == record


def test_versions_that_another_client_told_are_not_compared(folder, tmp_path):
    origin = tmp_path / "near" / ".streamplug" / "origin.json"
    assert text(folder, local=str(tmp_path / "near")) == "abcdefghi"
    record = json.loads(origin.read_text())
    client, _, versions = record["versions"].partition(" ")
    origin.write_text(json.dumps({**record, "versions": f"Other{client} {versions[::-1]}"}))
    assert text(folder, local=str(tmp_path / "near")) == "abcdefghi"
    assert json.loads(origin.read_text()) == record


def test_an_index_json_goes_before_looking(folder, looked):
    assert text(folder) == "abcdefghi"
    made = next(scans(folder).glob("*.index"))
    index = json.loads(read_with_digest(made))
    for entry in index["shards"]:
        name = entry["raw_data"]["basename"] + ".count"
        content = (made.parent / entry["raw_count"]["basename"]).read_bytes()
        (folder / name).write_bytes(content)
        entry["raw_count"]["basename"] = name
    index["shards"].reverse()
    (folder / "index.json").write_text(json.dumps(index))
    looked.clear()
    assert text(folder) == "fghideabc"
    assert StreamingDataset(local=str(folder))[0] == {"byte": ord("f")}
    assert text(folder / "*.raw") == "abcdefghi"  # files that are named are those that are read
    assert looked == []


def test_what_was_found_before_an_error_is_kept(folder, looked):
    (folder / "b.raw").write_bytes(b"d!")
    with pytest.raises(CorruptShardError, match=r"b\.raw: byte 1 is damaged"):
        text(folder)
    (folder / "b.raw").write_bytes(b"de")
    before = set(looked)
    looked.clear()
    assert text(folder) == "abcdefghi"
    assert "b.raw" in looked
    assert {"a.raw", "b.raw", "c.raw"} <= before | set(looked)
    assert not list((scans(folder).parent / "tmp").iterdir())


def test_what_was_kept_and_is_damaged_is_found_again(folder, looked):
    assert text(folder) == "abcdefghi"
    kept = scans(folder)
    for path in [*kept.glob("*.index"), *kept.glob("*.json")]:
        path.write_text("{") if path.suffix == ".json" else path.unlink()
    assert text(folder) == "abcdefghi"
    for path in [*kept.glob("*.index"), *kept.glob("*.count")]:
        path.unlink()
    assert text(folder) == "abcdefghi"
    assert len(looked) == 9


def damages(content):
    yield b""
    yield content[:-1]
    for at in range(0, len(content), 31):
        yield content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("suffix", [".index", ".json"])
def test_damaged_results_are_scanned_again(folder, suffix):
    assert text(folder) == "abcdefghi"
    index = next(scans(folder).glob("*.index"))
    path = next(scans(folder).glob(f"*{suffix}"))
    whole = path.read_bytes()
    for damaged in damages(whole):
        index.unlink()
        path.write_bytes(damaged)
        assert text(folder) == "abcdefghi"
        assert path.read_bytes() == whole


@pytest.mark.parametrize("local", [None, "cache"])
def test_the_start_after_damage_of_a_scanned_file_scans_again(folder, tmp_path, local):
    options = {} if local is None else {"local": str(tmp_path / local)}
    assert text(folder, **options) == "abcdefghi"
    kept = scans(folder) if local is None else tmp_path / local / ".streamplug" / "scan"
    path = min(kept.glob("*.count"))
    whole = path.read_bytes()
    for damaged in (*damages(whole), None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(CorruptShardError, match=rf"{path.name}.*scans them again"):
            text(folder, **options)
        assert text(folder, **options) == "abcdefghi"
        assert path.read_bytes() == whole


def test_files_that_cannot_be_one_data_set_are_refused(folder):
    (folder / "b.raw").write_bytes(b"DE")
    with pytest.raises(InvalidIndexError, match="do not all have the same columns"):
        text(folder)


@pytest.mark.parametrize(
    "name", ["a:b.raw", "~b.raw", "a?.raw", "a\nb.raw", os.fsdecode(b"\xff.raw")]
)
def test_a_file_whose_name_an_index_cannot_have_is_to_be_renamed(tmp_path, name):
    (tmp_path / name).write_bytes(b"1\n")
    with pytest.raises(ConfigError) as refused:
        Stream(local=str(tmp_path), format="bytes-as-samples").open()
    assert f"the file {name!r} cannot be listed" in str(refused.value)
    assert str(refused.value).endswith("; rename the file")


def test_notes_are_told_once_with_an_example(folder, caplog):
    (folder / "b.raw").write_bytes(b"d ")
    (folder / "c.raw").write_bytes(b"f hi")
    for _ in range(2):
        text(folder)
    (record,) = caplog.records
    assert record.message.endswith("b.raw and 1 others: there are blanks, such as at 1")


def test_damage_in_what_was_read_is_no_loss_of_what_was_made(folder, tmp_path):
    cache = tmp_path / "cache"
    assert text(folder, local=str(cache)) == "abcdefghi"
    (cache / "a.raw").write_bytes(b"ab")
    assert text(folder, local=str(cache)) == "abcdefghi"
    assert (cache / "a.raw").read_bytes() == b"abc"


def test_a_format_of_the_data_set_is_that_of_its_streams(folder):
    stream = Stream(remote=str(folder))
    dataset = StreamingDataset(streams=[stream, stream], format="bytes-as-samples")
    assert dataset.size == 18


def test_progress_is_told(folder):
    told = []
    deriver = derived.ScanCache(Stream(remote=str(folder)).storage, folder, "bytes-as-samples", 0)
    files = Stream(remote=str(folder), format="bytes-as-samples").location.files
    deriver.get_index(files, folder, lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_progress_is_reported_in_order_by_the_thread_that_waits(tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(30):
        (tmp_path / "many" / f"{number:02d}.raw").write_bytes(b"a")
    reports = []
    cache = derived.ScanCache(open_storage(str(tmp_path / "many")), None, "bytes-as-samples", 0)
    cache.get_index(
        FileSet(str(tmp_path / "many"), ("",)),
        tmp_path,
        lambda *report: reports.append((*report, threading.get_ident())),
    )
    assert reports == [(done, 30, threading.get_ident()) for done in range(31)]
