"""Sources of streams, such as tables, whose manifest names rows of data sets elsewhere."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import replace

import pytest
from streamplug_ranges import read_header_sizes
from streamplug_testing import SourceTests, isolated_plugins

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.builtin.mds import MDS
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    InvalidIndexError,
    NotFound,
    StateError,
    Transient,
    UnknownNameError,
)
from streamplug.plugin import Provider, register
from streamplug.plugin.catalog import load_catalog, load_manifests
from streamplug.plugin.location import open_storage
from streamplug.plugin.registry import unregister
from streamplug.source import OpenSources, Source, list_manifests


class RowList(Source):
    """A directory with a rows.json: for each version, rows of a data set."""

    def open(self, stream, observer):
        manifest = json.loads(stream.storage.read("rows.json"))
        version = stream.version or len(manifest["versions"])
        if version > len(manifest["versions"]):
            raise ConfigError(f"version={version}: {stream.url} has {len(manifest['versions'])}")
        rows = manifest["versions"][version - 1]
        if stream.select is not None:
            chosen = stream.select.rows(range_array(len(stream.select)))
            rows = [rows[position] for position in chosen]
        base = replace(stream, remote=manifest["data"], format=None, version=None, select=rows)
        return base.open(observer)


def range_array(size):
    import numpy as np

    return np.arange(size)


@pytest.fixture(autouse=True)
def registered():
    register("source", "rowlist", RowList)
    yield
    unregister("source", "rowlist")


def make_table(folder, *versions):
    with MDSWriter(out=folder / "set", columns={"n": "int"}, max_samples_per_shard=9) as out:
        for n in range(100):
            out.write({"n": n})
    (folder / "table").mkdir()
    manifest = {"data": str(folder / "set"), "versions": versions}
    (folder / "table" / "rows.json").write_text(json.dumps(manifest))
    return str(folder / "table")


class TestRowList(SourceTests):
    name = "rowlist"

    def make_location(self, folder):
        rows = list(range(3, 100, 2))
        return make_table(folder, rows), [{"n": n} for n in rows]


def numbers(**options):
    return [int(sample["n"]) for sample in StreamingDataset(**options)]


def test_a_table_has_versions(tmp_path):
    table = make_table(tmp_path, [1, 2], [1, 2, 50], [50])
    options = {"remote": table, "format": "rowlist"}
    assert numbers(**options) == [50]
    assert numbers(**options, version=2) == [1, 2, 50]
    streams = [Stream(**options, version=1), Stream(remote=str(tmp_path / "set"), select=[7])]
    assert numbers(streams=streams) == [1, 2, 7]
    state = StreamingDataset(**options, batch_size=1).state_dict(0)
    with pytest.raises(StateError, match="select: other rows of stream 0"):
        StreamingDataset(**options, version=1, batch_size=1).load_state_dict(state)


def test_a_table_is_recognized_by_its_manifest(tmp_path, monkeypatch):
    table = make_table(tmp_path, [4, 5])
    with pytest.raises(NotFound, match=r"index\.json does not exist"):
        StreamingDataset(remote=table)
    monkeypatch.setattr("streamplug.source.source.load_manifests", lambda: {"rows.json": "rowlist"})
    assert numbers(remote=table) == [4, 5]
    monkeypatch.setattr("streamplug.source.source.load_manifests", lambda: {"rows.json": "nothing"})
    with pytest.raises(UnknownNameError, match="table: unknown source 'nothing'"):
        StreamingDataset(remote=table)


def test_a_distribution_declares_the_manifest_of_its_source(tmp_path):
    table = make_table(tmp_path, [4, 5])
    declared = Provider("source", "declared", f"{__name__}:RowList", manifest="rows.json")
    with isolated_plugins(declared):
        assert list_manifests() == {"view.json": "view", "rows.json": "declared"}
        assert numbers(remote=table) == [4, 5]
        with pytest.raises(NotFound, match=r"index\.json does not exist"):
            StreamingDataset(remote=str(tmp_path / "other"))


def test_files_are_refused_without_the_distribution_that_reads_them():
    class Lines(MDS):
        source = "files"

    with isolated_plugins():
        register("format", "lines", Lines)
        for remote in (["a.txt", "b.txt"], "logs/*.txt"):
            with pytest.raises(UnknownNameError, match="pip install streamplug-files"):
                Stream(remote=remote, format="lines")
        with pytest.raises(ConfigError, match="a list of files needs a format="):
            Stream(remote=["a", "b"], format="mds")


def test_a_source_of_other_options_is_not_offered_as_a_format():
    with pytest.raises(UnknownNameError) as caught:
        Stream(remote="x", format="no-such-format")
    offered = str(caught.value).partition("Available: ")[2].split(", ")
    assert {"mds", "rowlist"} <= set(offered)
    assert not {"files", "index", "where"} & set(offered)
    with pytest.raises(ConfigError, match="name the format of the files"):
        Stream(remote="x", format="files")


def test_a_manifest_is_looked_for_again_when_that_fails(tmp_path, monkeypatch):
    table = make_table(tmp_path, [4, 5])
    monkeypatch.setattr("streamplug.source.source.load_manifests", lambda: {"rows.json": "rowlist"})
    monkeypatch.setattr("streamplug.transfer.retry.sleep", lambda _: None)
    failures = [Transient("busy")]

    def exists(self, key):
        if failures:
            raise failures.pop()
        return True

    storage_class = type(Stream(remote=table).storage)
    monkeypatch.setattr(storage_class, "exists", exists)
    assert numbers(remote=table) == [4, 5]
    failures = [Transient("busy")] * 2
    with pytest.raises(Transient, match="busy; gave up after 2 attempts"):
        numbers(remote=table, download_retry=1)


def test_a_version_is_of_a_table(tmp_path):
    make_table(tmp_path, [4])
    with pytest.raises(ConfigError, match=r"version=2: .* is neither a view nor a table"):
        StreamingDataset(remote=str(tmp_path / "set"), version=2)
    with pytest.raises(ConfigError, match="version= with streams="):
        StreamingDataset(streams=[Stream(remote=str(tmp_path / "set"))], version=2)
    for version in (-1, 1.5, True):
        with pytest.raises(ConfigError, match="version="):
            Stream(remote="x", version=version)
    with pytest.raises(ConfigError, match="a list of files needs a format="):
        StreamingDataset(remote=["a", "b"], format="rowlist")


def test_each_manifest_has_a_distribution():
    assert set(load_manifests().values()) <= set(load_catalog()["source"])


def write_numbers(folder, name, *, size=30, **options):
    with MDSWriter(out=folder / name, columns={"n": "int"}, max_samples_per_shard=1) as out:
        for n in range(size):
            out.write({"n": n})
    return Stream(remote=f"file://{folder / name}", **options)


def test_a_storage_is_opened_once_for_the_headers_of_all_shards(tmp_path, monkeypatch):
    opened = []

    def counting(url, options=None):
        opened.append(url)
        return open_storage(url, options)

    monkeypatch.setattr("streamplug.source.stream_location.open_storage", counting)
    stream = write_numbers(tmp_path, "set", size=20, local=str(tmp_path / "cache")).open()
    sizes = [read_header_sizes(stream, shard, "n") for shard in range(20)]
    assert [found.tolist() for found in sizes] == [[8]] * 20
    assert stream.file_versions == ""  # there are checksums
    assert len(opened) == 1
    again = pickle.loads(pickle.dumps(stream.stream))  # each process has a client of its own
    assert again.storage.exists("index.json")
    assert len(opened) == 2


def test_opened_streams_are_described_together(tmp_path):
    streams = [
        write_numbers(tmp_path, "first", select=range(3, 9)),
        write_numbers(tmp_path, "second", local=str(tmp_path / "cache")),
    ]
    opened = OpenSources.open(streams)
    assert len(opened) == 2
    assert [index.size for index in opened.indexes] == [30, 30]
    assert not opened[0].downloads
    assert opened.downloads
    assert opened.decoded_bytes == 0  # not known of the encoding
    assert opened.row_bytes == sum(index.raw_bytes for index in opened.indexes) // 60
    reader = opened.make_reader(["n"])
    assert [reader.row(n)["n"] for n in range(8)] == [3, 4, 5, 6, 7, 8, 0, 1]
    with pytest.raises(ConfigError, match="columns"):
        opened.checked(["m"], allow_unsafe=False)
    fingerprint = opened.make_fingerprint(reader.starts)
    assert fingerprint.digest != OpenSources(opened[1:]).make_fingerprint(reader.starts).digest
    assert OpenSources.open(streams).make_fingerprint(reader.starts) == fingerprint


@pytest.mark.parametrize("remote", ["{}", "{}/*.mds"])
def test_a_format_with_an_index_is_not_read_without_one(tmp_path, remote):
    (tmp_path / "shard.00000.mds").write_bytes(b"x")
    with pytest.raises(NotFound, match=r"index\.json does not exist: there is no data set, or"):
        StreamingDataset(remote=remote.format(tmp_path), format="mds")


HTML = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 1234\n" % (b"a" * 64)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HTML, "is an HTML page, such as one that asks for a login, and no data set's index"),
        (LFS, r"is a pointer of Git LFS: run `git lfs pull`, and no"),
        (gzip.compress(b"{}", mtime=0), "is gzip data, and no"),
        (b"", r"is empty; was the writer stopped"),
        (b'{"version": 2, "sha', r"is not whole, valid JSON"),
    ],
)
def test_what_is_no_index_is_named_as_what_it_is(tmp_path, content, message):
    (tmp_path / "index.json").write_bytes(content)
    with pytest.raises(InvalidIndexError, match=r"index\.json " + message):
        StreamingDataset(remote=str(tmp_path), batch_size=1)


def test_a_directory_is_no_index_and_an_index_is_no_data_set(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        out.write({"n": 1})
    with pytest.raises(NotFound, match=r"index\.json: name the directory of the data set"):
        StreamingDataset(remote=f"{tmp_path}/set/index.json", batch_size=1)
    (tmp_path / "index.json").mkdir()
    with pytest.raises(NotFound, match=r"index\.json is a directory, and no index"):
        StreamingDataset(remote=str(tmp_path), batch_size=1)


def test_a_shard_that_is_another_file_is_named_as_what_it_is(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        out.write({"n": 1})
    (tmp_path / "set" / "shard.00000.mds").write_bytes(LFS)
    with pytest.raises(CorruptShardError, match=r"00000\.mds has .*; it is a pointer of Git LFS"):
        StreamingDataset(remote=str(tmp_path / "set"), local=str(tmp_path / "c"), batch_size=1)[0]
