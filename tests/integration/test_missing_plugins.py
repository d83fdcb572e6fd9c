"""The error about a plugin that is not installed says which data set needs it, and for what."""

from __future__ import annotations

import json

import pytest
from streamplug_testing.isolation import isolated_plugins

from streamplug import MDSWriter, Stream
from streamplug.dataset import StreamingDataset
from streamplug.errors import UnknownNameError


@pytest.fixture
def made(tmp_path):
    """Writes a set, and says something else of its shards in its index."""

    def made(name, **changes):
        with MDSWriter(out=tmp_path / name, columns={"image": "bytes"}, compression="gz") as out:
            out.write({"image": b"x"})
        index = tmp_path / name / "index.json"
        told = json.loads(index.read_text())
        told["shards"][0].update(changes)
        index.write_text(json.dumps(told))
        return str(tmp_path / name)

    return made


def error_of(**arguments):
    with isolated_plugins(), pytest.raises(UnknownNameError) as caught:
        list(StreamingDataset(**arguments))
    return str(caught.value).splitlines()[0]


def test_of_a_storage(made):
    said = error_of(remote="s3://me:secret@bucket/set?key=secret")
    assert said.startswith("s3://bucket/set: unknown storage 's3'. It is provided by streamplug-")
    streams = [Stream(remote=made("a")), Stream(remote="gs://bucket/code", local="x")]
    assert error_of(streams=streams).startswith(
        "gs://bucket/code: unknown storage 'gs'. It is prov"
    )


@pytest.mark.parametrize("cached", [False, True])
def test_of_a_compression(made, tmp_path, cached):
    place = made("set", compression="zstd:3")
    given = {"remote": place, "local": str(tmp_path / "cache")} if cached else {"local": place}
    said = error_of(**given)
    assert "unknown compression 'zstd'. It is provided by streamplug-zstandard" in said
    assert said.startswith(f"{place}/shard.00000.mds.gz: unknown")


def test_of_an_encoding(made):
    place = made("set", column_encodings=["jpeg"])
    said = (
        f"{place}/index.json: shard 0: column 'image': unknown encoding 'jpeg'. It is provided by"
    )
    assert error_of(local=place).startswith(f"{said} streamplug-image, which is not installed")


def test_of_a_format_of_shards(made):
    place = made("set", format="parquet")
    said = (
        f"{place}/index.json: shard 0: unknown format 'parquet'. It is provided by streamplug-par"
    )
    assert error_of(local=place).startswith(said)


def test_of_a_format_of_files(tmp_path):
    for remote in (str(tmp_path), [str(tmp_path), "b"], f"{tmp_path}/*.parquet"):
        said = error_of(remote=remote, format="parquet")
        first = remote if isinstance(remote, str) else remote[0]
        assert said.startswith(
            f"{first}: unknown format 'parquet'. It is provided by streamplug-par"
        )


NEEDS_MIXING = (
    "unknown order 'stratified'. It is provided by streamplug-mixing, which is not installed"
)


def test_of_an_order(made):
    place = made("set")
    assert error_of(local=place, batching_method="stratified").startswith(NEEDS_MIXING)
    said = error_of(local=place, curriculum={0: [1]})
    assert said.startswith(f"proportions that change: {NEEDS_MIXING}")


def test_of_proportions_that_change(made):
    streams = [Stream(local=made("set"), proportion=1)]
    with isolated_plugins():
        dataset = StreamingDataset(streams=streams, batch_size=1)
        state = dataset.state_dict()
        with pytest.raises(UnknownNameError, match=f"proportions that change: {NEEDS_MIXING}"):
            dataset.set_proportions([2])
        assert dataset.state_dict() == state
        assert [batch["image"] for batch in dataset.batches()] == [[b"x"]]
        segments = [{"epoch": 0, "done": 0, "proportions": [2.0]}]
        order = json.dumps({**json.loads(state["order"]), "segments": segments})
        dataset.load_state_dict({**state, "order": order})
        with pytest.raises(UnknownNameError, match=f"proportions that change: {NEEDS_MIXING}"):
            next(dataset.batches())
