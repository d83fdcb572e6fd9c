from __future__ import annotations

import errno
import gc
import hashlib
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from streamplug import MDSWriter, StreamingDataset, Writer, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import (
    ConfigError,
    EncodeError,
    EncodeTypeError,
    HashMismatchError,
    NotFound,
    OutputExistsError,
    StorageError,
    StreamplugError,
    Transient,
    UnknownNameError,
    WriterError,
)
from streamplug.plugin.registry import unregister
from tests.start_methods import in_fork

COLUMNS = {"id": "int", "text": "str"}


def sample(number: int) -> dict[str, Any]:
    return {"id": number, "text": f"sample {number}"}


def write(out: Any, count: int = 10, **kwargs: Any) -> None:
    with MDSWriter(columns=COLUMNS, out=out, **kwargs) as writer:
        for number in range(count):
            writer.write(sample(number))


def index(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "index.json").read_bytes())


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_samples_become_a_shard_and_an_index(tmp_path):
    out = tmp_path / "a" / "b"
    write(out)
    assert names(out) == ["index.json", "shard.00000.mds"]
    data = (out / "shard.00000.mds").read_bytes()
    size, digest = len(data), xxhash.xxh3_64_hexdigest(data)
    assert index(out) == {
        "version": 2,
        "shards": [
            {
                "column_encodings": ["int", "str"],
                "column_names": ["id", "text"],
                "column_sizes": [8, None],
                "compression": None,
                "format": "mds",
                "hashes": ["xxh3_64"],
                "raw_data": {
                    "basename": "shard.00000.mds",
                    "bytes": size,
                    "hashes": {"xxh3_64": digest},
                },
                "samples": 10,
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
            }
        ],
    }


def test_no_samples_give_a_set_without_shards(tmp_path):
    write(tmp_path, 0)
    assert (tmp_path / "index.json").read_bytes() == b'{"shards": [], "version": 2}'
    assert StreamingDataset(local=str(tmp_path)).size == 0


def test_a_path_object_will_do(tmp_path):
    write(tmp_path / "set")
    assert StreamingDataset(local=tmp_path / "set").size == 10


def test_digests_are_of_the_raw_and_of_the_compressed_file(tmp_path):
    write(tmp_path / "raw", hashes=["sha1", "xxh64"])
    write(tmp_path / "zip", hashes=["xxh64", "sha1", "sha1"], compression="gz:5")
    raw = (tmp_path / "raw" / "shard.00000.mds").read_bytes()
    zipped = (tmp_path / "zip" / "shard.00000.mds.gz").read_bytes()
    entry = index(tmp_path / "zip")["shards"][0]
    assert names(tmp_path / "zip") == ["index.json", "shard.00000.mds.gz"]
    assert (entry["hashes"], entry["compression"]) == (["sha1", "xxh64"], "gz:5")
    for data, file in (
        (zipped, entry["zip_data"]),
        (raw, index(tmp_path / "raw")["shards"][0]["raw_data"]),
    ):
        assert file["bytes"] == len(data)
        assert file["hashes"] == {
            "sha1": hashlib.sha1(data).hexdigest(),
            "xxh64": xxhash.xxh64(data).hexdigest(),
        }


@pytest.mark.parametrize("none", [[], ()])
def test_an_empty_list_of_digests_writes_none(tmp_path, none):
    write(tmp_path, hashes=none)
    [entry] = index(tmp_path)["shards"]
    assert (entry["hashes"], entry["raw_data"]["hashes"]) == ([], {})


def test_digests_are_named_in_a_list(tmp_path):
    with pytest.raises(ConfigError, match=r"hashes='sha1': expected a list .*\['sha1'\], \[\] for"):
        write(tmp_path, hashes="sha1")


@pytest.mark.parametrize("compression", [None, "gz"])
def test_damage_of_a_set_that_was_written_by_default_is_noticed(tmp_path, compression):
    write(tmp_path / "far", compression=compression)
    [path] = (tmp_path / "far").glob("shard*")
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with pytest.raises(HashMismatchError, match="has xxh3_64"):
        StreamingDataset(
            remote=str(tmp_path / "far"), local=str(tmp_path / "near"), download_retry=0
        )[0]


def test_shards_stay_below_the_limit(tmp_path):
    write(tmp_path, 200, size_limit="1kb")
    shards = index(tmp_path)["shards"]
    sizes = [shard["raw_data"]["bytes"] for shard in shards]
    assert len(sizes) > 5
    assert max(sizes) <= 1024
    assert min(sizes[:-1]) > 1024 - 40
    assert sum(shard["samples"] for shard in shards) == 200
    assert names(tmp_path)[1:] == [f"shard.{n:05d}.mds" for n in range(len(sizes))]


def test_without_a_limit_there_is_one_shard(tmp_path):
    write(tmp_path, 200, size_limit=None)
    assert len(index(tmp_path)["shards"]) == 1
    assert index(tmp_path)["shards"][0]["size_limit"] is None


@pytest.mark.parametrize("limit", [0, 1, 100, "0mb"])
def test_a_limit_without_room_for_a_sample_is_refused(tmp_path, limit):
    with pytest.raises(ConfigError) as caught:
        MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=limit)
    needed = int(re.search(r"a shard takes (\d+) bytes besides", str(caught.value)).group(1))
    assert str(caught.value).startswith(f"size_limit={limit!r} leaves no room for a sample: ")
    # The shard itself says its limit, in more digits.
    MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=needed + 10).finish()


@pytest.mark.parametrize("limit", [-1, True, 1.5, "many", "", [1], "-5mb"])
def test_a_limit_without_meaning_is_refused(tmp_path, limit):
    with pytest.raises(ConfigError, match=r"size_limit=.*: expected bytes, such as 67108864"):
        MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=limit)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"id": 1}, "; missing: ['text']"),
        ({"id": 1, "text": "a", "x": 1}, "; unknown: ['x']"),
        ({"id": 1, "txt": "a"}, "; missing: ['text']; unknown: ['txt']"),
        ({}, "; missing: ['id', 'text']"),
        ({"id": 1, "text": "a", 5: 1}, "; unknown: ['5']"),
    ],
)
def test_a_sample_must_have_the_columns(tmp_path, given, text):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    with pytest.raises(EncodeError) as caught:
        writer.write(given)
    assert str(caught.value) == f"a sample must have the columns ['id', 'text']{text}"
    with pytest.raises(EncodeError) as caught:
        writer.write_batch({name: [value] for name, value in given.items()})
    assert str(caught.value) == f"a sample must have the columns ['id', 'text']{text}"


@pytest.mark.parametrize("given", [[1, "a"], None, 5, "text"])
def test_a_sample_must_be_a_mapping(tmp_path, given):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    for write_it in (writer.write, writer.write_batch):
        with pytest.raises(EncodeTypeError, match=r"a sample maps column names to values, got"):
            write_it(given)


@pytest.mark.parametrize(
    ("column", "value", "expected", "got"),
    [
        ("id", "1", "takes an integer", "got str: '1'"),
        ("id", 1.5, "takes an integer", "got float: 1.5"),
        ("id", None, "takes an integer", "got NoneType"),
        ("text", b"a", "takes a str", "got bytes: b'a'"),
        ("text", 5, "takes a str", "got int: 5"),
    ],
)
def test_a_value_of_the_wrong_type_names_column_expected_and_got(
    tmp_path, column, value, expected, got
):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    bad = {**sample(0), column: value}
    batch = {name: [v, v] for name, v in bad.items()}
    for write_it, given in ((writer.write, bad), (writer.write_batch, batch)):
        with pytest.raises(EncodeTypeError) as caught:
            write_it(given)
        text = str(caught.value)
        assert text.startswith(f"column {column!r}: ")
        assert expected in text
        assert got in text


def test_a_value_out_of_range_names_the_column(tmp_path):
    writer = MDSWriter(columns={"n": "uint8"}, out=tmp_path)
    with pytest.raises(EncodeError, match=r"^column 'n': uint8 takes 0 to 255, got 256$"):
        writer.write({"n": 256})
    with pytest.raises(EncodeError, match=r"^column 'n': uint8 takes 0 to 255, got .*256"):
        writer.write_batch({"n": np.array([1, 256])})


def test_columns_of_a_batch_must_have_one_length(tmp_path):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    with pytest.raises(EncodeError) as caught:
        writer.write_batch({"id": [1, 2], "text": ["a"]})
    assert str(caught.value) == "the columns of a batch differ in length: {'id': 2, 'text': 1}"


@pytest.mark.parametrize(
    "values", [5, None, np.array(5), iter([1, 2]), b"ab", bytearray(b"ab"), "ab", {1, 2}, {1: 2}]
)
def test_a_column_of_a_batch_must_be_a_list_or_an_array(tmp_path, values):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    with pytest.raises(EncodeTypeError, match=r"column 'id': a batch has a list or an array"):
        writer.write_batch({"id": values, "text": ["a", "b"]})


def test_a_refused_sample_leaves_no_trace(tmp_path):
    with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
        writer.write(sample(0))
        with pytest.raises(EncodeTypeError):
            writer.write({"id": "x", "text": "a"})
        with pytest.raises(EncodeTypeError):
            writer.write_batch({"id": [1, "x"], "text": ["a", "b"]})
        writer.write(sample(1))
    assert StreamingDataset(local=str(tmp_path))[:] == [sample(0), sample(1)]


@pytest.mark.parametrize("columns", [{"id": "int"}, COLUMNS, {"text": "str"}])
def test_an_empty_batch_writes_nothing(tmp_path, columns):
    with MDSWriter(columns=columns, out=tmp_path) as writer:
        writer.write_batch({name: [] for name in columns})
    assert index(tmp_path)["shards"] == []


@pytest.mark.parametrize("write_last", [True, False])
def test_nothing_is_written_after_the_end(tmp_path, write_last):
    with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
        if write_last:
            writer.write(sample(0))
    before = (tmp_path / "index.json").read_bytes()
    with pytest.raises(WriterError, match=r"the data set is complete; make a new writer"):
        writer.write(sample(1))
    with pytest.raises(WriterError, match=r"the data set is complete; make a new writer"):
        writer.write_batch({"id": [1], "text": ["a"]})
    writer.finish()
    assert (tmp_path / "index.json").read_bytes() == before


def fail_in_with(**kwargs: Any) -> MDSWriter:
    with MDSWriter(columns=COLUMNS, size_limit=500, **kwargs) as writer:
        for number in range(100):
            writer.write(sample(number))
        raise RuntimeError("stop")


def test_an_exception_leaves_no_index(tmp_path):
    with pytest.raises(RuntimeError, match=r"stop"):
        fail_in_with(out=tmp_path)
    assert "index.json" not in names(tmp_path)
    assert all(name.startswith("shard.") for name in names(tmp_path))
    with pytest.raises(NotFound, match=r"index\.json does not exist: there is no data set, or its"):
        StreamingDataset(local=str(tmp_path))


def test_a_writer_that_was_given_up_does_not_pass_for_complete(tmp_path):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    with pytest.raises(EncodeTypeError), writer:
        writer.write({"id": "x", "text": "a"})
    for call in (writer.finish, lambda: writer.write(sample(0))):
        with pytest.raises(WriterError, match=r"the data set was given up after an error"):
            call()
    assert names(tmp_path) == []


def test_an_end_inside_the_block_is_enough(tmp_path):
    with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
        writer.write(sample(0))
        writer.finish()
    assert index(tmp_path)["shards"][0]["samples"] == 1


def test_an_exception_after_the_end_leaves_the_set_whole(tmp_path):
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)

    def finish_and_fail() -> None:
        with writer:
            writer.write(sample(0))
            writer.finish()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        finish_and_fail()
    writer.finish()
    assert StreamingDataset(local=str(tmp_path)).size == 1


@pytest.mark.parametrize("columns", [{}, [], None, "id", [("id", "int")], {1: "int"}, {"id": int}])
def test_columns_must_map_names_to_encodings(tmp_path, columns):
    with pytest.raises(ConfigError, match=r"columns="):
        MDSWriter(columns=columns, out=tmp_path)


def test_an_unknown_encoding_names_the_column(tmp_path):
    with pytest.raises(UnknownNameError) as caught:
        MDSWriter(columns={"id": "inr"}, out=tmp_path)
    assert str(caught.value).startswith("column 'id': unknown encoding 'inr'. Did you mean 'int'?")


def test_an_unknown_compression_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown compression 'gzz'. Did you mean 'gz'"):
        MDSWriter(columns=COLUMNS, out=tmp_path, compression="gzz")


def test_a_level_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"'gz' takes levels 0 to 9, got '10'|got 10"):
        MDSWriter(columns=COLUMNS, out=tmp_path, compression="gz:10")


def test_an_unknown_hash_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown hash 'sha0'; available: "):
        MDSWriter(columns=COLUMNS, out=tmp_path, hashes=["sha1", "sha0"])


def test_what_is_no_name_of_a_hash_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"expected names, such as 'sha1', got \['sha1'\]"):
        MDSWriter(columns=COLUMNS, out=tmp_path, hashes=[["sha1"]])


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown format 'msd'. Did you mean 'mds'"):
        Writer(columns=COLUMNS, out=tmp_path, format="msd")


@pytest.mark.parametrize(
    "kwargs",
    [{"retry": -1}, {"retry": "x"}, {"retry": None}, {"max_workers": 0}, {"max_workers": -3}],
)
def test_numbers_of_retries_and_uploads_are_checked(tmp_path, kwargs):
    with pytest.raises(ConfigError, match=r"must be a whole number of at least [01]"):
        MDSWriter(columns=COLUMNS, out=tmp_path, **kwargs)


@pytest.mark.parametrize("name", ["exist_ok", "keep_local", "progress_bar", "append"])
def test_flags_are_flags(tmp_path, name):
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigError, match=f"{name}='no': must be True or False"):
        MDSWriter(columns=COLUMNS, out=tmp_path, **{name: "no"})
    assert (tmp_path / "mine").exists()


def test_nothing_is_made_when_an_argument_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        MDSWriter(columns=COLUMNS, out=tmp_path / "new", hashes=["sha0"])
    assert not (tmp_path / "new").exists()


def test_mds_writer_takes_no_format(tmp_path):
    with pytest.raises(ConfigError, match=r"MDSWriter writes MDS; use Writer\(format=…\)"):
        MDSWriter(columns=COLUMNS, out=tmp_path, format="mds")


def test_a_directory_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError) as caught:
        MDSWriter(columns=COLUMNS, out=tmp_path)
    said = f"Directory is not empty: {tmp_path} holds 'notes.txt'; choose another directory"
    assert str(caught.value).startswith(said)
    for n in range(4):
        (tmp_path / f"n{n}").touch()
    with pytest.raises(OutputExistsError, match=r"holds 'n0', 'n1', 'n2' and 2 more; choose"):
        MDSWriter(columns=COLUMNS, out=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_directory_is_cleared_when_asked(tmp_path):
    write(tmp_path, 200, size_limit=1000)
    write(tmp_path, 1, exist_ok=True)
    assert names(tmp_path) == ["index.json", "shard.00000.mds"]


def test_an_empty_directory_will_do(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    assert StreamingDataset(local=str(tmp_path / "empty")).size == 10


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for exist_ok in (False, True):
        with pytest.raises(OutputExistsError, match=r"file is a file; choose another directory"):
            MDSWriter(columns=COLUMNS, out=tmp_path / "file", exist_ok=exist_ok)


@pytest.mark.parametrize(
    "out",
    [
        *(5, None, "", (), ("a", "b", "c"), ("a", None), ("a", ""), ["a", "b"]),
        *(("a", "a"), ("a", "b/../a")),  # the upload would be removed as the local copy
        *(("a", url) for url in ("file:{}/a", "FILE://{}/a", "local://{}/a")),
    ],
)
def test_a_place_without_meaning_is_refused(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    if isinstance(out, tuple):
        out = tuple(item and item.format(tmp_path) for item in out)
    with pytest.raises(ConfigError, match=r"^out="):
        MDSWriter(columns=COLUMNS, out=out)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_place_stays_where_it_was_when_the_working_directory_changes(
    tmp_path, monkeypatch
):
    (tmp_path / "other" / "set").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with MDSWriter(columns={"n": "int"}, out="set", max_samples_per_shard=2) as writer:
        writer.write_batch({"n": [0, 1, 2]})
        monkeypatch.chdir("other")
        writer.write_batch({"n": [3, 4]})
    assert list((tmp_path / "other" / "set").iterdir()) == []
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert [sample["n"] for sample in dataset] == [0, 1, 2, 3, 4]


# -- uploads ------------------------------------------------------------------


class Upload(LocalStorage):
    """Files of a directory, as a storage whose uploads can be made to fail."""

    hook: Callable[[str], None] = staticmethod(lambda key: None)
    keys: list[str]
    options: dict[str, Any]

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url.replace("uploads://", "file://"))
        type(self).options = options

    def upload(self, path: Path, key: str) -> None:
        type(self).hook(key)
        super().upload(path, key)
        type(self).keys.append(key)


@pytest.fixture
def storage(monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    monkeypatch.setattr(Upload, "keys", [], raising=False)
    register_storage("uploads", Upload)
    yield Upload
    unregister("storage", "uploads")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_a_url_gets_everything_and_nothing_stays_here(tmp_path, storage, temporary):
    write(f"uploads://{tmp_path}/far", 100, size_limit=1000)
    assert list(temporary.glob("*/*")) == []
    assert storage.keys[-1] == "index.json"
    assert names(tmp_path / "far") == sorted(storage.keys)
    assert StreamingDataset(local=str(tmp_path / "far")).size == 100


def test_files_for_a_url_alone_are_not_kept_until_the_end(tmp_path, storage, temporary):
    with MDSWriter(
        columns=COLUMNS, out=f"uploads://{tmp_path}/far", size_limit=1000, keep_local=True
    ) as writer:
        for number in range(100):
            writer.write(sample(number))
        writer._uploader.drain()
        assert len(names(tmp_path / "far")) > 2
        assert list(temporary.glob("**/shard.*")) == []
    assert StreamingDataset(local=str(tmp_path / "far")).size == 100


@pytest.mark.parametrize("keep", [False, True])
def test_of_a_pair_the_local_one_can_be_kept(tmp_path, storage, keep):
    near, far = tmp_path / "near", tmp_path / "far"
    write((near, f"uploads://{far}"), 100, size_limit=1000, keep_local=keep, compression="gz")
    assert names(far) == sorted(storage.keys)
    assert names(near) == (names(far) if keep else [])
    assert StreamingDataset(local=str(far)).size == 100


@pytest.mark.parametrize("url", ["uploads://{}", "simplecache::file://{}"])
def test_files_are_not_removed_that_their_upload_replaced(tmp_path, storage, url):
    if not url.startswith("uploads"):
        pytest.importorskip("streamplug_fsspec")
    far = tmp_path / "far"
    write((far, url.format(far)), 100, size_limit=1000, max_workers=1)
    assert StreamingDataset(local=str(far)).size == 100
    assert len(list(StreamingDataset(local=str(far), batch_size=1))) == 100


def test_the_first_of_a_pair_must_be_local(tmp_path):
    with pytest.raises(ConfigError, match=r"the first of the pair must be a path on this machine"):
        MDSWriter(columns=COLUMNS, out=("memory://a", "memory://b"))


def test_a_set_at_the_url_is_not_written_over(tmp_path, storage, temporary):
    write(f"uploads://{tmp_path}/far")
    with pytest.raises(OutputExistsError, match=r"far already holds a data set"):
        MDSWriter(columns=COLUMNS, out=f"uploads://{tmp_path}/far")
    assert list(temporary.glob("*/*")) == []
    assert StreamingDataset(local=str(tmp_path / "far")).size == 10


def test_a_set_that_is_replaced_loses_its_index_first(tmp_path, storage):
    write(f"uploads://{tmp_path}/far")
    with pytest.raises(RuntimeError):
        fail_in_with(out=f"uploads://{tmp_path}/far", exist_ok=True)
    assert "index.json" not in names(tmp_path / "far")
    write(f"uploads://{tmp_path}/far", 3, exist_ok=True)
    assert StreamingDataset(local=str(tmp_path / "far")).size == 3


def test_an_upload_that_fails_for_a_while_is_tried_again(tmp_path, storage, monkeypatch):
    failures: list[str] = []

    def fail(key: str) -> None:
        if failures.count(key) < 2:
            failures.append(key)
            raise Transient(f"{key}: busy")

    monkeypatch.setattr(Upload, "hook", staticmethod(fail))
    write(f"uploads://{tmp_path}/far", 100, size_limit=1000)
    assert len(failures) == 2 * len(storage.keys)
    assert StreamingDataset(local=str(tmp_path / "far")).size == 100


@pytest.mark.parametrize("exist_ok", [False, True])
def test_a_storage_that_is_busy_at_the_start_is_asked_again(
    tmp_path, storage, monkeypatch, exist_ok
):
    failures = []
    for name in ("stat", "delete"):
        operation = getattr(Upload, name)

        def fail_once(self, key, *, operation=operation, name=name):
            if name not in failures:
                failures.append(name)
                raise Transient(f"{key}: busy")
            return operation(self, key)

        monkeypatch.setattr(Upload, name, fail_once)
    (tmp_path / "far").mkdir()
    if exist_ok:
        (tmp_path / "far/index.json").write_text("{}")
    write(f"uploads://{tmp_path}/far", 3, exist_ok=exist_ok)
    assert failures == ["stat", "delete"][: 1 + exist_ok]
    assert StreamingDataset(local=str(tmp_path / "far")).size == 3


@pytest.mark.parametrize("broken", ["shard.00000.mds", "shard.00009.mds", "index.json"])
def test_an_upload_that_fails_leaves_no_index(tmp_path, storage, temporary, monkeypatch, broken):
    def fail(key: str) -> None:
        if key == broken:
            raise StorageError(f"{key}: no")

    monkeypatch.setattr(Upload, "hook", staticmethod(fail))
    writer = MDSWriter(
        columns=COLUMNS, out=f"uploads://{tmp_path}/far", size_limit=1000, max_workers=1
    )

    def write_all() -> None:
        with writer:
            for number in range(300):
                writer.write(sample(number))

    with pytest.raises(StorageError, match=rf"^{broken}: no$"):
        write_all()
    assert "index.json" not in names(tmp_path / "far")
    assert list(temporary.glob("*/*")) == []
    with pytest.raises(WriterError, match=r"given up after an error"):
        writer.finish()


def test_a_failed_upload_of_the_index_can_be_made_up_for_by_the_same_call(
    tmp_path, storage, monkeypatch
):
    def fail(key: str) -> None:
        if key == "index.json":
            raise StorageError(f"{key}: no")

    near, far = tmp_path / "near", tmp_path / "far"
    write(far, 10)
    out = (near, f"uploads://{far}")
    with monkeypatch.context() as context:
        context.setattr(Upload, "hook", staticmethod(fail))
        with pytest.raises(StorageError, match=r"^index\.json: no$"):
            write(out, 3, append=True)
    assert names(near) == []
    write(out, 3, append=True)
    assert StreamingDataset(local=str(far)).size == 13


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("durable", [True, False])
def test_a_fork_is_told_to_open_a_new_writer(tmp_path, storage, is_local, durable):
    def use():
        writer.write(sample(3))
        with pytest.raises(StreamplugError, match="open a new writer"):
            writer.finish()
        assert (names(folder) if folder.exists() else []) == before

    folder = tmp_path / "set"
    writer = MDSWriter(
        columns=COLUMNS, out=folder if is_local else f"uploads://{folder}", durable=durable
    )
    writer.write(sample(1))
    before = names(folder) if folder.exists() else []

    def take_over():
        with pytest.raises(OutputExistsError, match="another process"):
            MDSWriter(columns=COLUMNS, out=folder, exist_ok=True)

    assert in_fork(use) == 0
    if is_local:
        assert in_fork(take_over) == 0
    writer.finish()
    assert StreamingDataset(local=str(folder)).size == 1


def test_no_index_names_a_shard_whose_upload_failed_although_the_error_was_caught(
    tmp_path, storage, monkeypatch
):
    def fail(key: str) -> None:
        if key == "shard.00001.mds":
            raise StorageError(f"{key}: no")

    monkeypatch.setattr(Upload, "hook", staticmethod(fail))
    url, errors = f"uploads://{tmp_path}/far", []
    writer = MDSWriter(columns=COLUMNS, out=url, max_samples_per_shard=10, max_workers=1)
    for number in range(100):
        try:
            writer.write(sample(number))
        except StreamplugError as error:
            errors.append(str(error))
    assert errors[0] == "shard.00001.mds: no"
    assert set(errors[1:]) == {
        f"file://{tmp_path}/far: the data set was given up after an error; make a new writer for another one"
    }
    with pytest.raises(WriterError, match=r"given up after an error"):
        writer.finish()
    assert "index.json" not in names(tmp_path / "far")


@pytest.mark.parametrize("how", ["write", "write_batch"])
def test_a_writer_is_given_up_if_a_shard_cannot_be_written(tmp_path, monkeypatch, how):
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "secret")

    writer = MDSWriter(columns=COLUMNS, out=tmp_path, max_samples_per_shard=10)
    given: Any = {"id": list(range(25)), "text": ["a"] * 25}
    if how == "write":
        writer.write_batch(given)
        given = sample(25)
        for number in range(25, 30):
            writer.write(sample(number))
    with monkeypatch.context() as patch:
        patch.setattr("streamplug.write.writer.digests", fail)
        with pytest.raises(OSError, match="secret"):
            getattr(writer, how)(given)
    for call in (lambda: getattr(writer, how)(given), writer.finish):
        with pytest.raises(WriterError, match=r"given up after an error; make a new writer"):
            call()
    assert "index.json" not in names(tmp_path)
    write(tmp_path, exist_ok=True)
    assert StreamingDataset(local=str(tmp_path)).size == 10


@pytest.mark.parametrize("others", [0, 1])
def test_a_writer_of_two_threads_is_given_up(tmp_path, monkeypatch, others):
    """Whether the second one writes a sample or finishes the data set."""
    is_writing, may_end = threading.Event(), threading.Event()

    def wait(*_: Any) -> dict[str, str]:
        is_writing.set()
        assert may_end.wait(60)
        return {}

    monkeypatch.setattr("streamplug.write.writer.digests", wait)
    writer = MDSWriter(columns=COLUMNS, out=tmp_path, max_samples_per_shard=2)
    errors: list[WriterError] = []

    def write_all() -> None:
        try:
            for number in range(5):
                writer.write(sample(number))
        except WriterError as error:
            errors.append(error)

    thread = threading.Thread(target=write_all)
    thread.start()
    assert is_writing.wait(60)
    call = (lambda: writer.write(sample(5)), writer.finish)[others]
    with pytest.raises(WriterError, match=r"given up, as two threads wrote at a time; make a new"):
        call()
    may_end.set()
    thread.join(60)
    assert "two threads" in str(errors[0])
    with pytest.raises(WriterError, match=r"two threads"):
        writer.finish()
    assert "index.json" not in names(tmp_path)


@pytest.mark.parametrize(
    ("raised", "expected"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError, WriterError)]
)
def test_an_error_after_another_writer_took_over_is_not_lost(
    tmp_path, monkeypatch, raised, expected
):
    def fail(*_: Any) -> dict[str, str]:
        monkeypatch.undo()
        writer._make_place()
        raise raised("stopped")

    monkeypatch.setattr("streamplug.write.writer.digests", fail)
    writer = MDSWriter(columns=COLUMNS, out=tmp_path / "set", max_samples_per_shard=1)
    writer.write(sample(0))
    with pytest.raises(expected) as caught:
        writer.write(sample(1))
    errors = [caught.value, caught.value.__context__]
    assert raised("stopped").args in [error.args for error in errors if error is not None]
    with pytest.raises(WriterError, match="another writer was started"):
        writer.finish()


# -- several writers ----------------------------------------------------------


def test_one_writer_at_a_time_has_a_directory(tmp_path):
    first = MDSWriter(columns=COLUMNS, out=tmp_path)
    with pytest.raises(OutputExistsError, match="by another writer, of this process: end it"):
        MDSWriter(columns=COLUMNS, out=tmp_path)
    first.write(sample(1))
    first.finish()
    write(tmp_path, 10, append=True)


def test_what_another_writer_completes_meanwhile_is_not_removed(tmp_path, monkeypatch):
    def make(path, **options):
        monkeypatch.undo()
        write(path, 3)

    monkeypatch.setattr("streamplug.write.destination.make_directory", make)
    with pytest.raises(OutputExistsError, match="Directory is not empty"):
        MDSWriter(columns=COLUMNS, out=tmp_path / "set")
    assert StreamingDataset(local=str(tmp_path / "set")).size == 3


@pytest.mark.parametrize("is_pair", [True, False])
def test_uploads_of_a_writer_end_before_another_one_takes_its_place(
    tmp_path, storage, monkeypatch, is_pair
):
    gate = threading.Event()
    monkeypatch.setattr(Upload, "hook", staticmethod(lambda key: gate.wait(60)))
    url = f"uploads://{tmp_path}/far"
    out = (str(tmp_path / "near"), url) if is_pair else url
    options = {"out": out, "max_samples_per_shard": 5, "max_workers": 1}
    earlier = MDSWriter(columns=COLUMNS, exist_ok=True, **options)
    for number in range(10):
        earlier.write(sample(100 + number))
    threading.Timer(0.3, gate.set).start()
    write(count=10, exist_ok=True, **options)
    assert [item["id"] for item in StreamingDataset(local=str(tmp_path / "far"))] == list(range(10))
    with pytest.raises(WriterError, match="another writer was started"):
        earlier.finish()


def test_another_process_may_not_replace_what_is_being_written(tmp_path):
    code = (
        "from streamplug import MDSWriter; MDSWriter(columns={'n': 'int'}, out='.', exist_ok=True)"
    )
    with MDSWriter(columns=COLUMNS, out=tmp_path, max_samples_per_shard=1) as writer:
        writer.write(sample(1))
        writer.write(sample(2))
        result = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert "is being written by another writer, of another process" in result.stderr
    assert StreamingDataset(local=str(tmp_path)).size == 2


@pytest.mark.parametrize("options", [{"exist_ok": True}, {"append": True}])
def test_a_writer_takes_the_place_of_an_earlier_one_of_its_process_when_asked(tmp_path, options):
    if "append" in options:
        write(tmp_path, 0)
    earlier = MDSWriter(columns=COLUMNS, out=tmp_path, max_samples_per_shard=1, **options)
    earlier.write(sample(1))
    write(tmp_path, 3, **options)
    with pytest.raises(WriterError, match="another writer was started in the place of this one"):
        earlier.write(sample(2))
    with pytest.raises(WriterError, match="another writer was started in the place of this one"):
        earlier.finish()
    assert StreamingDataset(local=str(tmp_path)).size == 3


def test_an_index_of_another_writer_is_not_replaced(tmp_path, storage):
    url = f"uploads://{tmp_path}/far"
    writer = MDSWriter(columns=COLUMNS, out=url, exist_ok=True)
    write(url, 3)
    writer.write(sample(1))
    with pytest.raises(WriterError, match="was written by another writer meanwhile"):
        writer.finish()
    assert StreamingDataset(remote=url, local=str(tmp_path / "cache")).size == 3


def test_a_directory_behind_a_link_is_cleared(tmp_path):
    (tmp_path / "link").symlink_to("set")
    write(tmp_path / "set", 10)
    (tmp_path / "set" / "folder").mkdir()
    (tmp_path / "set" / "elsewhere").symlink_to(tmp_path)
    write(tmp_path / "link", 3, exist_ok=True)
    assert names(tmp_path / "set") == ["index.json", "shard.00000.mds"]
    assert (tmp_path / "link").is_symlink()


def test_options_reach_the_storage(tmp_path, storage):
    write(f"uploads://{tmp_path}/far", storage_options={"colour": "red"})
    assert storage.options == {"colour": "red"}


# -- progress -----------------------------------------------------------------


def test_progress_is_shown_when_asked(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    write(tmp_path, 1000, size_limit=5000, progress_bar=True)
    shown = capsys.readouterr().out
    assert "1,000 samples" in shown
    assert f"{len(index(tmp_path)['shards'])} shards" in shown


def test_progress_shows_a_directory_with_brackets(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    write(tmp_path / "run[" / "a]b", progress_bar=True)
    assert f"writing {tmp_path}/run[/a]b" in capsys.readouterr().out


class LatinTerminal(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="latin-1")

    def isatty(self):
        return True


class LostTerminal(io.StringIO):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, "the terminal is gone")

    def isatty(self):
        return True


def test_progress_escapes_what_a_terminal_cannot_show(tmp_path, monkeypatch):
    terminal = LatinTerminal()
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("sys.stdout", terminal)
    write(tmp_path / "ā", progress_bar=True)
    terminal.flush()
    assert f"writing {tmp_path}/\\u0101" in terminal.buffer.getvalue().decode("latin-1")
    assert index(tmp_path / "ā")["shards"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EPIPE])
def test_a_terminal_that_disappears_does_not_end_the_writer(tmp_path, monkeypatch, number):
    monkeypatch.setattr("sys.stdout", LostTerminal(number))
    write(tmp_path, progress_bar=True)
    assert index(tmp_path)["shards"]


def test_nothing_is_shown_unless_asked(tmp_path, capsys):
    write(tmp_path)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("samples", [0, 3])
def test_a_writer_that_is_dropped_without_an_index_warns(tmp_path, caplog, samples):
    writer = MDSWriter(columns={"id": "int"}, out=tmp_path / "set")
    for number in range(samples):
        writer.write({"id": number})
    del writer
    gc.collect()  # collects the writers that other tests dropped, too
    told = (
        f"{tmp_path / 'set'}: the writer was dropped without finish(), so no index.json was written"
    )
    [level] = [r.levelname for r in caplog.records if r.getMessage().startswith(told)]
    assert level == "WARNING"


def test_a_writer_that_ends_otherwise_does_not_warn(tmp_path, caplog):
    with MDSWriter(columns={"id": "int"}, out=tmp_path / "finished") as writer:
        writer.write({"id": 1})
    aborted = MDSWriter(columns={"id": "int"}, out=tmp_path / "aborted")
    with pytest.raises(RuntimeError), aborted:
        raise RuntimeError
    kept = MDSWriter(columns={"id": "int"}, out=tmp_path / "replaced")
    MDSWriter(columns={"id": "int"}, out=tmp_path / "replaced", exist_ok=True).finish()
    with pytest.raises(UnknownNameError):
        MDSWriter(columns={"id": "itn"}, out=tmp_path / "never")
    del writer, aborted, kept
    gc.collect()
    assert not [record for record in caplog.records if "dropped" in record.getMessage()]


def test_a_program_that_ends_with_an_open_writer_is_told(tmp_path):
    call = f"MDSWriter(columns={{'a': 'int'}}, out={str(tmp_path / 's')!r})"
    program = f"from streamplug import MDSWriter\nwriter = {call}"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stderr.startswith(f"{tmp_path / 's'}: the writer was dropped without finish()")
