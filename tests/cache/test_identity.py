"""Which data set a directory caches, when the copy of the index in it is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import CacheConflictError


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
