"""Replication: groups of ranks that get the same samples, on one node and on several."""

from __future__ import annotations

import json

import pytest

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.plan.state import unpack

SIZE = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int"}, out=out, size_limit=350) as writer:
        writer.write_batch({"id": list(range(SIZE))})
    return str(out)


@pytest.mark.parametrize(
    ("world", "by", "counted", "kept"),
    [
        ((1, 4), 1, (1, 4), (1, 4)),
        ((1, 4), 2, (1, 2), (1, 2)),
        ((2, 2), 2, (1, 2), (2, 1)),
        ((4, 2), 2, (2, 2), (4, 1)),
        ((2, 8), 8, (1, 2), (2, 1)),
        ((4, 2), 4, (1, 2), (2, 1)),
        ((3, 2), 3, (1, 2), (1, 2)),
        ((6, 2), 3, (2, 2), (1, 4)),
        ((2, 4), 2, (1, 4), (2, 2)),
        ((2, 2), 4, (1, 1), (1, 1)),
    ],
)
def test_groups_count_as_ranks(world, by, counted, kept):
    nodes, local = world
    for rank in range(nodes * local):
        place = World(nodes, local, 3, rank, 2)
        assert place.replicated(by) == World(*counted, 3, rank // by, 2)
        assert place.replicated(by, keep_nodes=True) == World(*kept, 3, rank // by, 2)


@pytest.mark.parametrize("partition", ["orig", "relaxed", "elastic"])
def test_ranks_that_are_no_groups_are_refused(folder, partition):
    pytest.importorskip("streamplug_mosaic")
    data = StreamingDataset(
        local=folder, batch_size=5, replication=3, world=World(2, 2), partition_algo=partition
    )
    with pytest.raises(ConfigError, match="replication=3: the 4 ranks are not groups of 3"):
        len(data)


def test_uses_name_groups(folder):
    options = {"local": folder, "batch_size": 5, "replication": 2}
    data = [StreamingDataset(**options, world=World(1, 4, rank=rank)) for rank in range(4)]
    for rank, one in enumerate(data):
        read = next(iter(one.batches()))["id"].tolist()
        uses = one.explain(0, epoch=0, rank=rank // 2)
        assert [(use.sample, use.rank) for use in uses] == [(n, rank // 2) for n in read]
    with pytest.raises(ConfigError, match="rank=3: with replication=2, groups of ranks count as"):
        data[3].explain(0, rank=3)


def runs(folder, world, partition, **options):
    """Return the data set of each rank."""
    ranks = world[0] * world[1]
    settings = {"local": folder, "batch_size": 5, "partition_algo": partition, **options}
    return [StreamingDataset(world=World(*world, rank=rank), **settings) for rank in range(ranks)]


def batches(data):
    return [batch["id"].tolist() for batch in data.batches()]


@pytest.mark.parametrize("partition", ["orig", "relaxed", "elastic"])
@pytest.mark.parametrize(
    ("world", "by"), [((2, 2), 2), ((4, 2), 2), ((2, 8), 8), ((4, 2), 4), ((6, 2), 3)]
)
def test_replicas_read_the_same_and_continue_where_they_stood(folder, partition, world, by):
    pytest.importorskip("streamplug_mosaic")
    groups = world[0] * world[1] // by
    options = {"shuffle": True, "shuffle_block_size": 30, "replication": by}
    first = runs(folder, world, partition, **options)
    iterators = [data.batches() for data in first]
    for _ in range(2):
        begun = [next(each)["id"].tolist() for each in iterators]
        assert all(begun[rank] == begun[rank // by * by] for rank in range(len(begun)))
    states = [json.loads(json.dumps(data.state_dict())) for data in first]
    assert all(state == states[0] for state in states)
    assert states[0]["sample_in_epoch"] == 2 * 5 * groups
    assert unpack(states[0])["global_batch"] == 5 * groups
    rest = [[batch["id"].tolist() for batch in each] for each in iterators]
    again = runs(folder, world, partition, **options)
    for data, expected in zip(again, rest):
        data.load_state_dict(states[0])
        assert batches(data) == expected
        assert sum(map(len, expected)) + 2 * 5 == len(data)
    counted = first[0].state_dict(num_samples=5 * groups)
    assert counted["sample_in_epoch"] == 5 * groups


@pytest.mark.parametrize("partition", ["orig", "relaxed"])
def test_the_order_is_that_of_the_nodes_that_mosaicml_streaming_counts(folder, partition):
    pytest.importorskip("streamplug_mosaic")
    options = {"shuffle": True, "shuffle_algo": "py1s"}
    replicated = runs(folder, (2, 2), partition, replication=2, **options)
    plain = runs(folder, (1, 2), partition, **options)
    assert [batches(replicated[rank]) for rank in (0, 2)] == [batches(data) for data in plain]
    assert replicated[0].state_dict()["initial_physical_nodes"] == 1
    assert replicated[0].state_dict()["num_canonical_nodes"] == 64


def test_each_node_goes_on_reading_its_own_part_with_the_elastic_partition(folder):
    first, *_, last = runs(
        folder, (2, 4), "elastic", replication=4, num_canonical_nodes=2, batch_size=10
    )
    assert not {n for batch in batches(first) for n in batch} & set(range(SIZE // 2, SIZE))
    assert not {n for batch in batches(last) for n in batch} & set(range(SIZE // 2))
