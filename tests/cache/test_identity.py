"""Which data set a directory caches, when the copy of the index in it is damaged."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from streamplug import MDSWriter, StreamingDataset, register_storage
from streamplug.builtin.local_storage import LocalStorage
from streamplug.cache.identity import claim_directory
from streamplug.errors import CacheConflictError
from streamplug.plugin.registry import unregister


def write(folder, count, **how):
    with MDSWriter(out=folder, columns={"n": "int"}, size_limit=200, **how) as out:
        for n in range(count):
            out.write({"n": n})


@pytest.fixture
def far(tmp_path):
    write(tmp_path / "far", 40)
    return tmp_path / "far"


@pytest.fixture
def near(far, tmp_path):
    """A cache of it, with shards."""
    near = tmp_path / "near"
    assert read(far, near) == list(range(40))
    return near


def read(far, near):
    return [row["n"] for row in StreamingDataset(remote=f"file://{far}", local=str(near))]


def damage(path, at=100):
    """Let one bit be another."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 100, -1])  # it parses, or does not
def test_a_damaged_copy_of_the_index_is_fetched_again(far, near, caplog, at):
    damage(near / "index.json", at)
    shards = {path: path.stat().st_mtime_ns for path in near.glob("*.mds")}
    assert read(far, near) == list(range(40))
    assert caplog.messages == [f"{near}/index.json is damaged: fetching it again"]
    assert (near / "index.json").read_bytes() == (far / "index.json").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in near.glob("*.mds")} == shards
    assert read(far, near) == list(range(40))
    assert len(caplog.messages) == 1
    assert [row["n"] for row in StreamingDataset(local=str(near))] == list(range(40))


def test_an_index_of_many_slashes_takes_little_memory(tmp_path):
    near = tmp_path / "near"
    (near / "a").mkdir(parents=True)
    index = json.dumps({"x": [f"{number}{'/' * 4000}" for number in range(100)]}).encode()
    tracemalloc.start()
    try:
        claim_directory(near, "file:///far", index)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(index)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("change", [lambda _: None, damage, Path.unlink])
def test_another_version_of_the_set_is_refused(far, near, change):
    change(near / "index.json")
    write(far, 50, exist_ok=True)
    with pytest.raises(
        CacheConflictError, match=r"already holds a data set: .* was written again since"
    ):
        read(far, near)


def test_a_cache_whose_files_were_removed_takes_another_version(far, near):
    for path in near.glob("*"):
        if path.name != ".streamplug":
            path.unlink()
    write(far, 50, exist_ok=True)
    assert read(far, near) == list(range(50))


def test_a_changed_index_is_refused_where_nothing_says_what_it_was(far, near):
    damage(near / "index.json")
    mark = near / ".streamplug" / "origin.json"
    said = json.loads(mark.read_text())
    mark.write_text(json.dumps({"remote": said["remote"]}))
    with pytest.raises(CacheConflictError, match="was written again since"):
        read(far, near)
    mark.unlink()  # somebody's own copy
    with pytest.raises(CacheConflictError, match="it is not the one at"):
        read(far, near)


@pytest.fixture
def merged(tmp_path):
    """A data set whose shards lie in two directories, each a data set of its own."""
    folder = tmp_path / "merged"
    shards = []
    for part in ("train", "val/a"):
        write(folder / part, 10)
        index = json.loads((folder / part / "index.json").read_text())
        for shard in index["shards"]:
            shard["raw_data"]["basename"] = f"{part}/{shard['raw_data']['basename']}"
        shards += index["shards"]
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return folder


@pytest.mark.parametrize("part", ["train", "val/a"])
@pytest.mark.parametrize("merged_first", [True, False])
@pytest.mark.parametrize("split", [True, False])
def test_a_cache_below_that_of_another_set_with_files_there_is_refused(
    merged, tmp_path, part, merged_first, split
):
    near = tmp_path / "near"
    write(tmp_path / "other" / part, 20)
    other = {"remote": str(tmp_path / "other" / part), "local": str(near / part)}
    if split:
        other = {"remote": str(tmp_path / "other"), "local": str(near), "split": part}
    places = [{"remote": str(merged), "local": str(near)}, other]
    first, second = places if merged_first else places[::-1]
    list(StreamingDataset(**first))
    message = (
        f"{near}, the cache of {merged}, and {near}/{part}, the cache of {tmp_path}/other/{part}, would "
        "share files; pass another local= to one of them"
    )
    with pytest.raises(CacheConflictError, match=f"^{message}$"):
        StreamingDataset(**second)


@pytest.mark.parametrize("merged_first", [True, False])
def test_a_set_and_its_parts_share_a_cache(merged, tmp_path, merged_first):
    near = tmp_path / "near"
    whole, part = [[*range(10)] * 2, {}], [[*range(10)], {"split": "val/a"}]
    for rows, options in ([whole, part] if merged_first else [part, whole]) * 2:
        dataset = StreamingDataset(remote=str(merged), local=str(near), **options)
        assert [row["n"] for row in dataset] == rows


def test_caches_of_which_one_is_in_the_other_and_no_files_are_shared(far, tmp_path):
    write(tmp_path / "other", 20)
    for _ in range(2):
        assert read(far, tmp_path / "near") == list(range(40))
        assert read(tmp_path / "other", tmp_path / "near" / "train") == list(range(20))


class Elsewhere(LocalStorage):
    """The same URL at several endpoints."""

    def __init__(self, url, *, at, **options):
        super().__init__("file" + url[url.index(":") :], **options)
        self.url, self._at = url, at

    @property
    def endpoint(self):
        return self._at

    def path(self, key):
        return super().path(key).replace("/set", f"/{self._at[7:]}", 1)


@pytest.fixture
def elsewhere():
    register_storage("elsewhere", Elsewhere)
    yield
    unregister("storage", "elsewhere")


def test_another_endpoint_is_another_data_set(tmp_path, monkeypatch, elsewhere):
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "caches"))
    for number, name in enumerate(("one", "two"), 1):
        write(tmp_path / name, number)
    shutil.copytree(tmp_path / "one", tmp_path / "mirror")

    def size(at, **local):
        options = {"storage_options": {"at": at and f"http://{at}"}, **local}
        return StreamingDataset(remote=f"elsewhere://{tmp_path}/set", **options).size

    near = {"local": str(tmp_path / "near")}
    assert size("one", **near) == size("mirror", **near) == 1
    with pytest.raises(
        CacheConflictError, match=r"/set of http://mirror, not of http://two, which has others"
    ):
        size("two", **near)
    assert (size("one"), size("two")) == (1, 2)
    write(tmp_path / "mirror", 3, exist_ok=True)
    with pytest.raises(CacheConflictError, match="was written again since"):
        size("mirror", **near)
