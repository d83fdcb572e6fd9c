from __future__ import annotations

from typing import ClassVar

import pytest
from streamplug_testing import AccessTests, isolated_plugins

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.errors import ConfigError, PluginError, UnknownNameError
from streamplug.plugin import register
from streamplug.read import NeedFetcher, PartialNeed
from streamplug.source import Access, ShardAccess


class TestShard(AccessTests):
    name = "shard"


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}, max_samples_per_shard=10) as out:
        for n in range(30):
            out.write({"n": n})
    return str(tmp_path / "set")


class Noted(ShardAccess):
    """Whole shards; notes what it is asked for."""

    seen: ClassVar = []

    def check(self, stream):
        if stream.split is not None:
            raise ConfigError("split= is not for this access")

    def open_shards(self, stream, columns):
        self.seen.append((stream.index.size, stream.selection, columns, stream.shard_files.retries))
        return super().open_shards(stream, columns)


class Kept(ShardAccess):
    keeps_shards = False


@pytest.fixture
def accesses():
    with isolated_plugins():
        register("access", "noted", Noted)
        register("access", "kept", Kept)
        Noted.seen = []
        yield


def test_an_access_gets_the_opened_stream(folder, accesses):
    dataset = StreamingDataset(
        remote=folder, access="noted", columns=["n"], select=[3, 5], download_retry=4
    )
    assert [sample["n"] for sample in dataset] == [3, 5]
    [(size, selection, columns, retries)] = Noted.seen
    assert (size, len(selection), columns, retries) == (30, 2, ["n"], 4)


def test_an_access_refuses_options_before_anything_is_read(accesses):
    with pytest.raises(ConfigError, match="split= is not for this access"):
        Stream(remote="memory://there/is/none", access="noted", split="train")
    with pytest.raises(UnknownNameError, match="Did you mean 'noted'"):
        Stream(remote="memory://there/is/none", access="note")
    with pytest.raises(PluginError, match="pip install streamplug-ranges"):
        Stream(remote="memory://there/is/none", access="range")


def test_an_access_that_keeps_no_shards_has_no_cache(folder, tmp_path, accesses):
    for option in ({"cache_limit": "1gb"}, {"keep_zip": True}):
        with pytest.raises(ConfigError, match="access='kept', which keeps no shards"):
            Stream(remote=folder, access="kept", **option)
    stream = Stream(remote=folder, local=str(tmp_path / "cache"), access="kept")
    assert stream.shown_cache == "nowhere: read by access='kept'"
    assert not stream.location.keeps_shards
    opened = stream.open()
    assert opened.downloads
    with pytest.raises(ConfigError, match="keep no shards"):
        opened.shards(None)


def test_the_interface_is_abstract():
    for cls in (Access, PartialNeed):
        with pytest.raises(TypeError):
            cls()
    with NeedFetcher() as fetcher:  # nothing to wait for
        fetcher.wait(0)
        fetcher.release(0)
