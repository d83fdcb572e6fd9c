"""What data sets and streams say of themselves."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from streamplug_testing.http import serving

from streamplug import MDSWriter, Stream, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import StreamplugError


@pytest.fixture
def made(tmp_path):
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "set", max_samples_per_shard=10) as out:
        for n in range(30):
            out.write({"n": n})
    return tmp_path / "set"


def printed(thing):
    out = StringIO()
    Console(file=out, width=200).print(thing)
    return out.getvalue()


def test_a_data_set_is_told_in_a_line(made):
    data = StreamingDataset(local=str(made), batch_size=5)
    assert repr(data) == f"<StreamingDataset of {str(made)!r}: 30 samples, 3 shards, batch_size=5>"


def test_a_data_set_is_told_in_a_table(made, tmp_path):
    streams = [
        Stream(remote=str(made), local=str(tmp_path / "cache"), cache_limit="1gb", repeat=2.0)
    ]
    streams.append(Stream(local=str(made), choose=7))
    data = StreamingDataset(
        streams=streams,
        batch_size=4,
        shuffle=True,
        shuffle_seed=11,
        num_canonical_nodes=2,
        world=World(nodes=2, ranks_per_node=2, rank=3),
    )
    for shown in (data._repr_html_(), printed(data)):
        for text in (
            "60", "rank 3 of 4, on 2 nodes", "window, seed 11", "num_canonical_nodes=2",
            "4 a rank, 16 in all", "repeat 2.0", "choose 7", "read in place",
            f"{tmp_path / 'cache'}, at most 1gb", "67 samples",
        ):  # fmt: skip
            assert text in shown, text


def test_a_block_size_is_told_of_shuffles_that_use_it(made):
    told = {}
    for name in ("window", "global"):
        dataset = StreamingDataset(
            local=str(made), batch_size=4, shuffle=True, shuffle_algo=name, shuffle_block_size=50
        )
        told[name] = "over 50 samples" in dataset._repr_html_()
    assert told == {"window": True, "global": False}


def test_where_a_run_stands_is_told(made):
    data = StreamingDataset(local=str(made), batch_size=5)
    list(data.batches())
    next(iter(data.batches()))
    assert "1, from step 0" in data._repr_html_()


def test_what_is_told_is_escaped(tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    with MDSWriter(columns={"n": "int"}, out=folder) as out:
        out.write({"n": 1})
    data = StreamingDataset(local=str(folder))
    assert "<img" not in data._repr_html_()
    assert "&lt;img" in data._repr_html_()
    assert "[red]" in printed(Stream(local=str(tmp_path / "[red]")))


def test_nobody_is_asked_and_no_credentials_are_told(made, tmp_path):
    with serving(made) as server:
        url = server.url.replace("//", "//me:secret@")
        stream = Stream(remote=url, local=str(tmp_path / "cache"))
        data = StreamingDataset(streams=[stream], batch_size=2)
        asked = len(server.requests)
        told = "".join(
            f"{thing!r}{thing._repr_html_()}{printed(thing)}" for thing in (data, data.streams[0])
        )
        assert len(server.requests) == asked
    assert server.url in told
    assert "secret" not in told


def test_a_place_that_no_plugin_knows_is_told_all_the_same():
    stream = Stream(remote="nowhere://me:secret@host/set?token=secret", local="cache")
    with pytest.raises(StreamplugError):
        _ = stream.url
    told = f"{stream!r}{stream._repr_html_()}{printed(stream)}"
    assert "nowhere://host/set" in told
    assert "secret" not in told


def test_a_data_set_that_could_not_be_made_has_a_repr():
    class Kept(StreamingDataset):
        def __init__(self, **kwargs):
            self.kept.append(self)
            super().__init__(**kwargs)

        kept = []  # noqa: RUF012 - of this test

    with pytest.raises(StreamplugError):
        Kept(local="/nowhere")
    assert "Kept object" in repr(Kept.kept[0])
    assert "not made yet" in Kept.kept[0]._repr_html_()


def test_an_empty_data_set_is_told(tmp_path):
    with MDSWriter(columns={"n": "int"}, out=tmp_path / "empty"):
        pass
    data = StreamingDataset(local=str(tmp_path / "empty"))
    assert "0 samples, 0 shards" in repr(data)
    assert "rank 0 of 1" in data._repr_html_()


def test_many_streams_are_counted(made):
    data = StreamingDataset(streams=[Stream(local=str(made)) for _ in range(50)])
    assert data._repr_html_().count("read in place") == 20
    assert "30 more" in data._repr_html_()
    assert "30 more" in printed(data)
    assert " and 49 more: " in repr(data)


def test_a_world_that_cannot_be_served_is_told(made):
    data = StreamingDataset(local=str(made), replication=2, world=World(ranks_per_node=3))
    assert "replication" in data._repr_html_()
