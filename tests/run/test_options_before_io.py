"""A misspelt option is refused before anything is requested, listed or created."""

from __future__ import annotations

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, StreamplugError
from streamplug.dataset import StreamingDataset

OF_STREAMS = {
    "download_retry": -1,
    "download_timeout": 0,
    "validate_hash": "sha0",
    "keep_zip": "yes",
    "cache_limit": "10 apples",
    "access": "shards",
    "storage_options": "anonymous",
    "decoders": {"n": "jpeg"},
    "format": "webdatasets",
}
OF_ORDER = {
    "epoch_size": "many",
    "predownload": -1,
    "sampling_method": "best",
    "sampling_granularity": 0,
    "curriculum": {0: [0.5, 0.5]},
    "batching_method": "sorted",
    "num_canonical_nodes": 0,
    "batch_size": 0,
    "shuffle": "yes",
    "shuffle_algo": "windows",
    "shuffle_seed": -1,
    "shuffle_block_size": 0,
    "partition_algo": "rubber",
    "allow_unsafe_types": "yes",
    "columns": "n",
    "replication": 0,
    "on_error": "ignore",
    "max_errors": 3,
    "callbacks": ["logs"],
    "progress_bar": "yes",
    "world": (1, 2),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("far")
    with MDSWriter(out=root, columns={"n": "int"}) as writer:
        writer.write_batch({"n": [1, 2, 3]})
    with serving(root) as running:
        yield running


@pytest.mark.parametrize("name", [*OF_STREAMS, *OF_ORDER])
def test_an_option_of_a_data_set_is_checked_first(server, tmp_path, name):
    before, local = len(server.requests), tmp_path / "near"
    options = {"shuffle": True} if name.startswith("shuffle_") else {}
    options |= {name: {**OF_STREAMS, **OF_ORDER}[name]}
    with pytest.raises(StreamplugError):
        StreamingDataset(remote=server.url, local=str(local), **options)
    assert len(server.requests) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", OF_STREAMS)
def test_an_option_of_a_stream_is_checked_first(server, tmp_path, name):
    before, local = len(server.requests), tmp_path / "near"
    with pytest.raises(StreamplugError):
        Stream(remote=server.url, local=str(local), **{name: OF_STREAMS[name]})
    assert len(server.requests) == before
    assert list(tmp_path.iterdir()) == []


def test_the_last_of_several_streams_is_checked_before_the_first_is_opened(server, tmp_path):
    before = len(server.requests)
    streams = [
        Stream(remote=server.url, local=str(tmp_path / "near")),
        Stream(remote="s5://bucket/set", local=str(tmp_path / "other")),
    ]
    with pytest.raises(StreamplugError, match="s5"):
        StreamingDataset(streams=streams)
    assert len(server.requests) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "weights", [[{"proportion": 1}, {}], [{"proportion": 0}] * 2, [{"repeat": 2, "choose": 1}, {}]]
)
def test_weights_that_do_not_go_together_are_refused_first(server, tmp_path, weights):
    before = len(server.requests)
    with pytest.raises(StreamplugError):
        StreamingDataset(
            streams=[
                Stream(remote=server.url, local=str(tmp_path / str(number)), **weight)
                for number, weight in enumerate(weights)
            ]
        )
    assert len(server.requests) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_threads": -1}, "num_threads=-1"),
        ({"batch_transform": dict, "transform": dict}, "batch_transform="),
        ({"in_order": False}, "in_order=False"),
        ({"batch_size": 5}, "batch_size=5"),
    ],
)
def test_an_option_of_a_loader_is_checked_before_a_sample_is_read(server, tmp_path, options, text):
    torch_adapter = pytest.importorskip("streamplug.adapters.torch")
    dataset = torch_adapter.StreamingDataset(
        remote=server.url, local=str(tmp_path / "near"), batch_size=2
    )
    before, files = len(server.requests), sorted(tmp_path.rglob("*"))
    with pytest.raises(StreamplugError, match=text):
        torch_adapter.StreamingDataLoader(dataset, **options)
    assert len(server.requests) == before
    assert sorted(tmp_path.rglob("*")) == files
