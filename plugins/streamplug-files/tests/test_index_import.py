"""The index.json of another library is read where a format knows it."""

from __future__ import annotations

import json

import pytest
import streamplug_fsspec.plugin
import streamplug_ranges.plugin
from streamplug_files import IndexImportFormat, plugin
from streamplug_testing import isolated_plugins
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.builtin.mds import MDS
from streamplug.errors import ConfigError, InvalidIndexError
from streamplug.plugin import register

COUNT = 20


class Listed(MDS, IndexImportFormat):
    """Shards of MDS with an index that names them, and little else."""

    def import_index(self, index, files):
        if not isinstance(index, dict) or "files" not in index:
            return None
        if index.get("secret"):
            raise ConfigError("it is encrypted")
        sizes = files.sizes(index["files"])
        return [
            {
                **index["schema"],
                "samples": int.from_bytes(files.read(name, 0, 4), "little"),
                "raw_data": {"basename": name, "bytes": sizes[name], "hashes": {}},
                "zip_data": None,
            }
            for name in index["files"]
        ]


@pytest.fixture(autouse=True)
def listed():
    with isolated_plugins(plugin, streamplug_fsspec.plugin, streamplug_ranges.plugin):
        register("format", "listed", Listed)
        yield


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "set"
    with MDSWriter(out=str(folder), columns={"n": "int"}, max_samples_per_shard=6) as out:
        for n in range(COUNT):
            out.write({"n": n})
    shards = json.loads((folder / "index.json").read_text())["shards"]
    own = ("samples", "raw_data", "zip_data", "hashes")
    schema = {key: value for key, value in shards[0].items() if key not in own}
    write(folder, files=[each["raw_data"]["basename"] for each in shards], schema=schema)
    return folder


def write(folder, **index):
    (folder / "index.json").write_text(json.dumps(index))


def read(remote, **options):
    dataset = StreamingDataset(remote=str(remote), format="listed", **options)
    return [sample["n"] for sample in dataset]


@pytest.mark.parametrize("access", ["shard", "range"])
def test_it_is_read_where_it_lies_and_from_afar(folder, tmp_path, access):
    assert read(folder, access=access) == list(range(COUNT))
    with serving(tmp_path) as server:
        assert read(f"{server.url}/set", access=access) == list(range(COUNT))
        cache = str(tmp_path / "cache")
        assert read(f"{server.url}/set", local=cache, access=access) == list(range(COUNT))
        assert read(f"{server.url}/set", local=cache, access=access) == list(range(COUNT))


def test_one_of_ours_is_read_as_it_is(tmp_path):
    with MDSWriter(out=str(tmp_path), columns={"n": "int"}) as out:
        out.write({"n": 7})
    assert read(tmp_path) == [7]


def test_a_file_that_it_names_must_be_there(folder):
    next(folder.glob("*.mds")).unlink()
    with pytest.raises(InvalidIndexError, match=r"index\.json names a file that does not exist"):
        read(folder)


def test_what_the_format_refuses_is_said_with_the_place(folder):
    write(folder, files=[], secret=True)
    with pytest.raises(ConfigError, match=r"set/index\.json: it is encrypted"):
        read(folder)


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "[1]", "7", '{"chunks": []}'])
def test_what_no_format_knows_is_refused(folder, content):
    (folder / "index.json").write_text(content)
    with pytest.raises(InvalidIndexError, match=r"index\.json"):
        read(folder)


def test_without_its_format_the_message_says_what_to_do(folder):
    with pytest.raises(InvalidIndexError, match="format="):
        Stream(remote=str(folder)).open()
