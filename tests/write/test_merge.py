from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, StreamingDataset, merge_index
from streamplug.cli import main
from streamplug.errors import ConfigError, InvalidIndexError, NotFound
from streamplug.index import COMPANION_NAME


def part(folder, ids, **options):
    with MDSWriter(columns={"id": "int"}, out=str(folder), size_limit=200, **options) as writer:
        for n in ids:
            writer.write({"id": n})


@pytest.fixture
def place(tmp_path):
    part(tmp_path / "b", range(10, 20), compression="gz", hashes=["xxh64"])
    part(tmp_path / "a" / "x", range(10))
    return tmp_path


def ids(place, **options):
    return [sample["id"] for sample in StreamingDataset(remote=str(place), **options)]


def test_parts_are_read_as_one_in_the_order_given(place):
    shards = merge_index([place / "b", str(place / "a" / "x" / "index.json")], place)
    assert shards == len(json.loads((place / "index.json").read_bytes())["shards"])
    assert ids(place, batch_size=1) == [*range(10, 20), *range(10)]


def test_all_folders_are_found_in_the_order_of_their_names(place):
    assert merge_index(place) == merge_index(str(place))  # its own index is no part of it
    assert ids(place, batch_size=1) == list(range(20))


def test_merged_parts_are_merged_again_as_one(place):
    part(place / "a" / "y" / "z", range(100, 103))
    merge_index(place / "a")
    merge_index(place)
    assert ids(place, batch_size=1) == [*range(10), 100, 101, 102, *range(10, 20)]


def test_far_parts_get_an_index_near_and_far(tmp_path):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}"
    for name in "ab":
        part(f"{far}/{name}", range(3))
    merge_index([(near / "a", f"{far}/a"), f"{far}/b"], (near, far))
    assert (near / "index.json").exists()
    assert ids(far, local=str(tmp_path / "cache"), batch_size=1) == [0, 1, 2] * 2
    (near / "index.json").unlink()
    merge_index((near, far), keep_local=False)
    assert not (near / "index.json").exists()


def test_near_index_is_read_where_there_is_one(tmp_path):
    near, far = tmp_path / "near", f"memory://{tmp_path.name}"
    part(near / "a", range(3))
    merge_index([(near / "a", f"{far}/a")], (near, far))
    assert ids(near, batch_size=1) == [0, 1, 2]


def test_companion_of_the_old_index_goes(place):
    (place / COMPANION_NAME).write_bytes(b"old")
    merge_index(place)
    assert not (place / COMPANION_NAME).exists()


def test_what_cannot_be_merged_is_told(place, tmp_path):
    with pytest.raises(ConfigError, match="does not lie below"):
        merge_index([place / "b"], place / "a")
    with pytest.raises(ConfigError, match="no parts"):
        merge_index(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="expected a list"):
        merge_index(place / "b", place)
    with pytest.raises(ConfigError, match="merge_index"):
        merge_index()
    with pytest.raises(NotFound, match="has not finished"):
        merge_index([place / "c"], place)
    (place / "b" / "index.json").write_text("{")
    with pytest.raises(InvalidIndexError, match=r"b/index\.json"):
        merge_index(place)
    assert not (place / "index.json").exists()


def test_command_merges(place):
    told = CliRunner().invoke(main, ["merge", str(place), str(place / "b"), "--json"])
    assert (told.exit_code, json.loads(told.stdout)["shards"]) == (
        0,
        merge_index([place / "b"], place),
    )
    assert "in one index.json" in CliRunner().invoke(main, ["merge", str(place)]).stdout
    refused = CliRunner().invoke(main, ["merge", str(place / "b")])
    assert refused.exit_code == 1
    assert "no parts" in refused.stderr
