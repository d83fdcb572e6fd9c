"""How often a shard leaves the storage, counted at a server, for simulated nodes with disks of their own.

Every rank and worker of every node reads its part of an epoch, in turn: what has to be fetched is a matter of
the plan, not of time. (Processes that want one shard at the same moment: `tests/cache`.)
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataset
from streamplug.types import World

pytest.importorskip("aiohttp")

SHARDS, EACH, BATCH = 30, 16, 4
SIZE = SHARDS * EACH


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("www")
    with MDSWriter(out=root / "set", columns={"n": "int", "b": "bytes"}, size_limit=2400) as out:
        for n in range(SIZE):
            out.write({"n": n, "b": n.to_bytes(4, "little") * 30})
    assert len(list((root / "set").glob("*.mds"))) == SHARDS
    for node in range(4):  # so that the server can tell who asks
        (root / f"node{node}").symlink_to(root / "set")
    return root


class Nodes:
    """Machines that read together; each has a disk, and its ranks and workers share it."""

    def __init__(self, server, folder, nodes, workers, batch=BATCH, **order):
        self.server = server
        self.datasets = [
            StreamingDataset(
                remote=f"{server.url}/node{rank // 2}",
                local=str(folder / f"disk{rank // 2}"),
                batch_size=batch,
                world=World(nodes, 2, workers, rank, worker),
                **order,
            )
            for rank in range(2 * nodes)
            for worker in range(workers)
        ]

    def epoch(self):
        """Read an epoch; return how often each node fetched each shard."""
        before = len(self.server.requests)
        seen = Counter(sample["n"] for dataset in self.datasets for sample in dataset)
        assert set(seen) == set(range(SIZE))
        gets = defaultdict(Counter)
        for method, path, _ in self.server.requests[before:]:
            node, _, name = path.partition("/")
            if method == "GET" and name.endswith(".mds"):
                gets[name][node] += 1
        # Ranks and workers of a node share what it has.
        assert all(times == 1 for by in gets.values() for times in by.values())
        return {name: len(by) for name, by in gets.items()}


@pytest.fixture
def server(written):
    with serving(written) as server:
        yield server


NODES = pytest.mark.parametrize(("nodes", "workers"), [(1, 2), (2, 1), (2, 2), (4, 1), (4, 2)])
ORDERS = {
    "none": {},
    "window": {"shuffle": True, "shuffle_algo": "window", "shuffle_block_size": 4 * EACH},
}


def borders(nodes):
    """Return how many borders between the canonical nodes of the nodes lie inside of a shard."""
    return sum(SIZE * node // nodes % EACH != 0 for node in range(1, nodes))


@NODES
@pytest.mark.parametrize("order", ORDERS)
def test_a_shard_leaves_the_storage_once_in_an_epoch(server, tmp_path, nodes, workers, order):
    """But for those in which a border between two canonical nodes lies: these go to two nodes."""
    gets = Nodes(server, tmp_path, nodes, workers, **ORDERS[order]).epoch()
    assert sorted(gets.values()) == [1] * (SHARDS - borders(nodes)) + [2] * borders(nodes)


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_what_a_node_has_serves_it_in_every_epoch(server, tmp_path, nodes, order):
    """Canonical nodes keep their samples, so with caches that are kept nothing moves any more."""
    machines = Nodes(server, tmp_path / "kept", nodes, 1, **ORDERS[order])
    assert sum(machines.epoch().values()) == SHARDS + borders(nodes)
    assert machines.epoch() == {}
    # With empty disks again it is as in the first epoch.
    fresh = Nodes(server, tmp_path / "fresh", nodes, 1, **ORDERS[order])
    for dataset in fresh.datasets:
        state = dataset.state_dict()
        dataset.load_state_dict({**state, "epoch": 1})
    assert sum(fresh.epoch().values()) == SHARDS + borders(nodes)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_global_order_brings_nearly_all_shards_to_every_node(server, tmp_path, nodes):
    """A node reads SIZE / nodes samples out of all shards, anew in every epoch."""
    order = {"shuffle": True, "shuffle_algo": "global"}
    machines = Nodes(server, tmp_path, nodes, 1, **order)
    first = sum(machines.epoch().values())
    # That none of a shard's samples is a node's has the probability (1 - 1 / nodes) ** EACH.
    expected = SHARDS * nodes * (1 - (1 - 1 / nodes) ** EACH)
    assert 0.95 * expected <= first <= SHARDS * nodes
    second = sum(machines.epoch().values())
    assert first + second <= SHARDS * nodes


def test_samples_that_fill_up_the_last_batch_may_move_their_shards(server, tmp_path):
    """The last global batch is filled up from the beginning of the epoch, by whoever has room in it."""
    order = ORDERS["window"]
    world, batch = 4, 7
    machines = Nodes(server, tmp_path, world, 1, batch=batch, **order)
    filled = -SIZE % (2 * world * batch)
    assert filled > 0
    gets = machines.epoch()
    assert SHARDS + borders(world) <= sum(gets.values()) <= SHARDS + borders(world) + filled
