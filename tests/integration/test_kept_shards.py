"""Nodes with small disks keep the shards of their canonical node over epochs, counted at a server."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset
from streamplug.types import World

pytest.importorskip("aiohttp")

NODES, SHARDS, EACH, BATCH, EPOCHS = 4, 80, 16, 4, 4
SIZE = SHARDS * EACH


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("www")
    with MDSWriter(out=root / "set", columns={"n": "int", "b": "bytes"}, size_limit=2400) as out:
        for n in range(SIZE):
            out.write({"n": n, "b": n.to_bytes(4, "little") * 30})
    assert len(list((root / "set").glob("*.mds"))) == SHARDS
    for node in range(NODES):  # so that the server can tell who asks
        (root / f"node{node}").symlink_to(root / "set")
    return root


def read_as_node(node, url, folder, barrier, options):
    dataset = StreamingDataset(
        remote=f"{url}/node{node}",
        local=f"{folder}/disk{node}",
        batch_size=BATCH,
        world=World(nodes=NODES, rank=node),
        shuffle=True,
        shuffle_block_size=4 * EACH,
        **options,
    )
    for _ in range(EPOCHS):
        barrier.wait(60)
        assert sum(len(batch["n"]) for batch in dataset.batches()) == SIZE // NODES
        barrier.wait(60)


def shards_by_epoch(written, folder, **options):
    """Read some epochs on all nodes; return how often each node fetched each shard, by epoch."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(NODES + 1)
    with serving(written) as server:
        nodes = [
            context.Process(target=read_as_node, args=(n, server.url, folder, barrier, options))
            for n in range(NODES)
        ]
        for node in nodes:
            node.start()
        epochs = []
        for _ in range(EPOCHS):
            before = len(server.requests)
            barrier.wait(60)
            barrier.wait(60)
            paths = [path for method, path, _ in server.requests[before:] if method == "GET"]
            epochs.append(Counter(path for path in paths if path.endswith(".mds")))
        for node in nodes:
            node.join(30)
    assert [node.exitcode for node in nodes] == [0] * NODES
    return epochs


@pytest.mark.timeout(120)
@pytest.mark.parametrize("more", [2, -4])
def test_disks_for_a_part_of_the_set_are_filled_once(written, tmp_path, more):
    """A node's share and two shards suffice; with less, some is fetched again, but not all."""
    sizes = sorted(path.stat().st_size for path in (written / "set").glob("*.mds"))
    limit = sum(sizes) // NODES + more * sizes[-1]
    first, *later = shards_by_epoch(written, tmp_path, cache_limit=limit)
    assert len({path.rpartition("/")[2] for path in first}) == SHARDS
    if more > 0:
        assert first.total() <= 1.05 * SHARDS
        assert later == [Counter()] * (EPOCHS - 1)
    else:
        assert all(0 < epoch.total() < 0.8 * SHARDS for epoch in later)
