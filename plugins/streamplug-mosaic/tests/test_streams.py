"""Streams: their registry, their default directory, and the cache limit."""

from __future__ import annotations

import os
import pickle
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
import streamplug_mosaic
from streamplug_mosaic import construct_from_registry, streams_registry

from streamplug.errors import AccessDenied, ConfigError


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return the directory for temporary files."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def registered():
    """Register a class of streams with an argument of its own."""

    @streams_registry.register("marked")
    class MarkedStream(streamplug_mosaic.Stream):
        def __init__(self, *, mark, **kwargs):
            super().__init__(**kwargs)
            self.mark = mark

    yield MarkedStream
    del streams_registry._registered["marked"]


def test_a_data_set_has_a_stream_of_the_registry(streaming, place, registered):
    dataset = streaming.StreamingDataset(
        local=place, stream_name="marked", stream_config={"mark": 7}, batch_size=4, keep_zip=True
    )
    [stream] = dataset.streams
    assert type(stream) is registered
    assert (stream.mark, stream.local, stream.keep_zip) == (7, place, True)
    assert len(list(dataset)) == 20


def test_attributes_that_are_set_are_used_by_the_next_data_set(streaming, place, tmp_path):
    streams = [streaming.Stream(local=place, proportion=0.5) for _ in range(2)]
    streams[0].proportion, streams[1].proportion = 0.9, 0.1
    options = {"batch_size": 2, "epoch_size": 20}
    dataset = streaming.StreamingDataset(streams=streams, **options)
    assert [stream.choose for stream in dataset.streams] == [18, 2]
    streams[0].proportion = 0.1
    dataset = streaming.StreamingDataset(streams=streams, **options)
    assert [stream.choose for stream in dataset.streams] == [10, 10]
    moved = streaming.Stream(local=str(tmp_path / "none"), keep_zip=False)
    moved.local, moved.keep_zip = place, True
    (stream,) = streaming.StreamingDataset(streams=[moved], batch_size=4).streams
    assert (stream.local, stream.keep_zip, stream.safe_keep_zip) == (place, True, True)
    moved.proportion = -1
    with pytest.raises(ConfigError, match="proportion=-1"):
        streaming.StreamingDataset(streams=[moved], batch_size=4)


def test_classes_are_listed_and_made_by_name(registered, tmp_path):
    assert streams_registry.get_all() == {
        "stream": streamplug_mosaic.Stream,
        "marked": registered,
    }
    assert "marked" in streams_registry
    assert streams_registry.get("stream") is streamplug_mosaic.Stream
    made = construct_from_registry(
        "marked",
        streams_registry,
        pre_validation_function=streamplug_mosaic.Stream,
        kwargs={"mark": 1, "local": str(tmp_path)},
    )
    assert made.mark == 1


def test_functions_are_registered_too():
    registry = streamplug_mosaic.TypedRegistry(("streaming", "tests"))
    registry.register("add", func=lambda left, right: left + right)
    assert construct_from_registry("add", registry, kwargs={"left": 1})(right=2) == 3
    arguments = {"left": 1, "right": 2}
    assert construct_from_registry("add", registry, False, kwargs=arguments) == 3

    def refuse(found):
        raise ValueError(f"refused: {found}")

    for validation in ("pre_validation_function", "post_validation_function"):
        with pytest.raises(ValueError, match="refused"):
            construct_from_registry("add", registry, kwargs=arguments, **{validation: refuse})
    registry.register("number", func=1)
    with pytest.raises(ConfigError, match="Expected number to be a class or function"):
        construct_from_registry("number", registry)
    registry.register("int", func=int)
    with pytest.raises(ConfigError, match="Expected int to be of type"):
        construct_from_registry("int", registry, pre_validation_function=str)


def test_entry_points_are_registered(monkeypatch):
    point = metadata.EntryPoint("local", "streamplug_mosaic:Stream", "streaming_streams_registry")
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [point] if group == point.group else []
    )
    assert streams_registry.get("local") is streamplug_mosaic.Stream
    other = streamplug_mosaic.TypedRegistry(streams_registry.namespace)
    assert other.get_all() == {}


def test_streams_that_are_not_registered_are_refused(streaming, place):
    with pytest.raises(ConfigError, match="'mine' is not registered; known names: stream"):
        streaming.StreamingDataset(local=place, stream_name="mine")
    assert streaming.StreamingDataset(stream_config={"local": place}).size == 20
    with pytest.raises(ConfigError, match="stream_config= is for the single stream of remote="):
        streaming.StreamingDataset(
            streams=[streaming.Stream(local=place)], stream_config={"choose": 3}
        )
    dataset = streaming.StreamingDataset(local=place, stream_config={"local": "b", "split": None})
    assert dataset.size == 20


def test_the_default_directory_depends_on_the_remote_and_the_split(streaming, temporary):
    digest = "d154dd169b19a268ace4aff1b8a579c4"
    stream = streaming.Stream(remote="remote_dir", split="train")
    private = temporary / f"streamplug-{os.getuid()}"
    assert stream.local == str(private / digest / "train")
    assert Path(stream.local).is_dir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert streaming.Stream(remote="remote_dir", split="val").local.endswith("val")
    assert pickle.loads(pickle.dumps(stream)).local == stream.local


def test_the_default_directory_of_a_remote_whose_name_is_not_utf8(streaming, temporary):
    stream = streaming.Stream(remote=str(temporary / os.fsdecode(b"caf\xe9")))
    assert Path(stream.local).is_dir()


def test_a_default_directory_that_exists_is_refused(streaming, temporary, monkeypatch):
    stream = streaming.Stream(remote="remote_dir")
    with pytest.raises(FileExistsError, match="Could not create a temporary local directory"):
        streaming.Stream(remote="remote_dir")
    with pytest.raises(FileExistsError, match="Could not create a temporary local directory"):
        streaming.Stream()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert streaming.Stream(remote="remote_dir").local == stream.local


def test_a_default_directory_is_never_below_what_others_can_write_to(streaming, temporary):
    private = temporary / f"streamplug-{os.getuid()}"
    private.symlink_to(temporary)
    with pytest.raises(AccessDenied, match="must be a directory that nobody else can write to"):
        streaming.Stream(remote="remote_dir")


def test_a_data_set_is_read_through_its_default_directory(streaming, place, temporary):
    dataset = streaming.StreamingDataset(remote=place, batch_size=4)
    assert len(list(dataset)) == 20
    [stream] = dataset.streams
    names = sorted(path.name for path in Path(place).iterdir())
    assert sorted(path.name for path in Path(stream.local).iterdir()) == names


def test_an_invalid_stream_leaves_no_directory(streaming, temporary):
    with pytest.raises(ConfigError, match="download_retry"):
        streaming.Stream(remote="remote_dir", download_retry=-1)
    assert not list(temporary.glob("*/*"))


def test_the_cache_limit_counts_the_index(streaming, tmp_path):
    remote, local = tmp_path / "far", tmp_path / "near"
    with streaming.MDSWriter(out=str(remote), columns={"n": "int"}, size_limit=400) as out:
        for n in range(400):
            out.write({"n": n})
    sizes = [path.stat().st_size for path in remote.iterdir()]
    index_size = (remote / "index.json").stat().st_size
    limit = sum(sizes) - index_size // 2
    dataset = streaming.StreamingDataset(
        remote=str(remote), local=str(local), batch_size=1, cache_limit=limit
    )
    assert len(list(dataset)) == 400
    assert dataset.cache_usage <= limit < sum(sizes)
    assert dataset.cache_limit == limit


def test_a_size_limit_below_a_header_gives_each_sample_a_shard(streaming, tmp_path):
    with streaming.MDSWriter(out=str(tmp_path), columns={"n": "int"}, size_limit=10) as out:
        for n in range(3):
            out.write({"n": n})
    dataset = streaming.LocalDataset(str(tmp_path))
    assert [len(shard) for shard in dataset.shards] == [1, 1, 1]
    assert [sample["n"] for sample in dataset] == [0, 1, 2]
