"""What is set so that it works badly is told once, and nothing is if it is set well."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.run import hints
from streamplug.run.placement import Placement


@pytest.fixture(autouse=True)
def _anew(monkeypatch, caplog):
    monkeypatch.setattr(hints, "_logged", set())
    caplog.set_level(logging.WARNING, "streamplug")


@pytest.fixture
def made(tmp_path):
    with MDSWriter(
        columns={"x": "ndarray:uint8:100"}, out=tmp_path / "set", max_samples_per_shard=20
    ) as out:
        for n in range(200):
            out.write({"x": np.full(100, n, np.uint8)})
    return str(tmp_path / "set")


def texts(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_run_that_is_set_well_hears_nothing(made, caplog, tmp_path):
    for number, settings in enumerate(
        (
            {},
            {"shuffle_block_size": 20},
            {"num_canonical_nodes": 4, "world": World(nodes=2)},
            {"shuffle_algo": "global", "shuffle_block_size": 1},
            {"cache_limit": "1mb"},
        )
    ):
        cache = str(tmp_path / f"cache-{number}")
        data = StreamingDataset(
            **{"remote": made, "local": cache, "batch_size": 5, "shuffle": True, **settings}
        )
        assert sum(len(batch["x"]) for batch in data.batches()) >= 100
    assert texts(caplog) == []


def test_blocks_smaller_than_shards_are_told_of_once(made, caplog):
    for _ in range(2):
        data = StreamingDataset(local=made, batch_size=5, shuffle=True, shuffle_block_size=7)
        for _ in range(2):
            list(data.batches())
    (text,) = texts(caplog)
    assert text.startswith("shuffle_block_size=7 is less than the 20 samples of an average shard")
    assert "shuffle_block_size=200" in text
    list(StreamingDataset(local=made, batch_size=5, shuffle=True, shuffle_block_size=8).batches())
    assert len(texts(caplog)) == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"shuffle": False, "shuffle_block_size": 7}, False),
        ({"shuffle_algo": "global", "shuffle_block_size": 7}, False),
        ({"shuffle_block_size": None}, False),
        ({"shuffle_block_size": 19}, True),
    ],
)
def test_blocks_count_where_they_are_used(made, caplog, settings, told):
    data = StreamingDataset(**{"local": made, "batch_size": 5, "shuffle": True, **settings})
    list(data.batches())
    assert bool(texts(caplog)) is told


@pytest.mark.parametrize(
    ("canonical_nodes", "nodes", "told"),
    [
        (3, 2, "each node needs all shards, rather than 1/2"),
        (2, 4, "each node needs 1/2 of the shards, rather than 1/4"),
        (4, 2, None),
        (2, 2, None),
        (3, 1, None),
        (None, 3, None),
    ],
)
def test_canonical_nodes_that_nodes_would_share_are_told_of(
    made, caplog, canonical_nodes, nodes, told
):
    world = World(nodes=nodes)
    data = StreamingDataset(
        local=made, batch_size=5, num_canonical_nodes=canonical_nodes, world=world
    )
    list(data.batches())
    assert len(texts(caplog)) == bool(told)
    assert all(told in text for text in texts(caplog))


def test_only_the_first_rank_tells(made, caplog):
    for rank in range(2):
        data = StreamingDataset(
            local=made, batch_size=5, num_canonical_nodes=3, world=World(nodes=2, rank=rank)
        )
        list(data.batches())
        assert len(texts(caplog)) == 1


def test_later_epochs_tell_nothing_in_workers_made_for_them(made, caplog, monkeypatch):
    data = StreamingDataset(local=made, batch_size=5, shuffle=True, shuffle_block_size=7)
    list(data.batches())
    monkeypatch.setattr(hints, "_logged", set())  # that of another process
    list(data.batches())
    assert len(texts(caplog)) == 1


def test_workers_without_a_batch_size_are_told_of(made, caplog):
    class SecondWorker(Placement):
        def plan_worker(self):
            world = self.plan_rank()
            return World(world.nodes, world.ranks_per_node, 2, world.rank, 0)

    class Worker(StreamingDataset):
        placement_class = SecondWorker

    list(Worker(local=made, batch_size=5))
    assert texts(caplog) == []
    list(Worker(local=made))
    (text,) = texts(caplog)
    assert text.startswith("2 workers read a data set without batch_size=")
    caplog.clear()
    list(StreamingDataset(local=made))
    assert texts(caplog) == []


def test_a_cache_too_small_for_a_batch_is_told_of_once(made, caplog, tmp_path):
    for _ in range(2):
        data = StreamingDataset(
            remote=made,
            local=str(tmp_path / "cache"),
            cache_limit=5000,
            batch_size=20,
            shuffle=True,
            shuffle_algo="global",
        )
        list(data.batches())
    (text,) = [text for text in texts(caplog) if "one batch needs" in text]
    assert text.startswith("cache_limit=5000 is less than twice the ")
    assert text.endswith("access='range' (streamplug-ranges), if the shards are not compressed")


@pytest.mark.parametrize(("limit", "told"), [(13_000, False), (8000, True)])
def test_a_cache_is_told_of_only_if_a_node_needs_more(made, caplog, tmp_path, limit, told):
    # Each of two nodes reads five shards of 2.4 kB, and all of them in each batch.
    data = StreamingDataset(
        remote=made,
        local=str(tmp_path / "cache"),
        cache_limit=limit,
        batch_size=50,
        shuffle=True,
        shuffle_block_size=100,
        num_canonical_nodes=2,
        world=World(nodes=2),
    )
    for _ in range(2):
        list(data.batches())
    assert any("one batch needs" in text for text in texts(caplog)) is told
    assert bool(data.stats().evictions) is told
