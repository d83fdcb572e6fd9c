"""Worlds that change while a data set is being read."""

from __future__ import annotations

import itertools
import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from streamplug.session.epoch_counter import CELLS, EpochCounter
from streamplug.session.world_change import CHANGE_CELLS, WorldChange

SIZE, GLOBAL_BATCH = 100, 12
WORLDS = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 6), (2, 3), (3, 2), (4, 3)]
"""Nodes and ranks per node, as many ranks as divide the global batch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int"}, out=out, size_limit=350) as writer:
        writer.write_batch({"id": list(range(SIZE))})
    return str(out)


def make(folder, world=(1, 1), rank=0, **options):
    world = World(*world, rank=rank)
    options = {"shuffle": True, "batch_size": GLOBAL_BATCH // world.ranks, **options}
    return StreamingDataset(local=folder, world=world, **options)


def undisturbed(folder, epochs=2, **options):
    """Return the global batches of some epochs as sorted sample ids."""
    data = make(folder, **options)
    return [[sorted(b["id"].tolist()) for b in data.batches()] for _ in range(epochs)]


class Group:
    """The ranks of a world that change, all in this process.

    Each rank has its data set, and its loop over batches or samples.
    """

    def __init__(self, folder, world, *, by_sample=False, **options):
        self.folder, self.options, self.by_sample = folder, options, by_sample
        ranks = World(*world).ranks
        self.data = [make(folder, world, rank, **options) for rank in range(ranks)]
        self.start_epoch()

    def start_epoch(self):
        self.loops = [iter(data if self.by_sample else data.batches()) for data in self.data]

    def step(self):
        """Return the sorted ids of the next global batch, or None after the last one."""
        parts = [self._batch(data, loop) for data, loop in zip(self.data, self.loops)]
        assert len({part is None for part in parts}) == 1
        return None if parts[0] is None else sorted(itertools.chain(*parts))

    def _batch(self, data, loop):
        if self.by_sample:
            part = [s["id"] for s in itertools.islice(loop, data.batch_size)]
        else:
            part = next(loop, {"id": np.array([])})["id"].tolist()
        return part or None

    def resize(self, world, survivors, rewind=0):
        """Go on with the survivors as the first ranks, and new ranks after them."""
        ranks = World(*world).ranks
        kept = survivors[:ranks]
        self.data = [self.data[n] for n in kept]
        self.loops = [self.loops[n] for n in kept]
        for rank, data in enumerate(self.data):
            data.resize(World(*world, rank=rank), rewind=rewind)
        states = [data.state_dict() for data in self.data]
        assert states == states[:1] * len(states)
        for rank in range(len(kept), ranks):
            joined = make(self.folder, world, rank, **self.options)
            joined.load_state_dict(states[0])
            self.data.append(joined)
            self.loops.append(iter(joined if self.by_sample else joined.batches()))


def run(folder, seed, **options):
    """Return the committed global batches of two epochs with random changes, and the number of these."""
    draw = random.Random(seed)
    first = draw.choice(WORLDS)
    group = Group(folder, first, by_sample=draw.random() < 0.5, **options)
    batches, changes = [[], []], 0
    for committed in batches:
        while (batch := group.step()) is not None:
            failed = draw.random() < 0.15
            if not failed:
                committed.append(batch)
            while failed or draw.random() < 0.25:
                survivors = draw.sample(range(len(group.data)), draw.randint(1, len(group.data)))
                group.resize(draw.choice(WORLDS), survivors, rewind=int(failed))
                failed, changes = False, changes + 1
        group.start_epoch()
    return first[0], batches, changes


def test_a_thousand_runs_have_the_global_batches_of_undisturbed_ones(folder):
    # The number of nodes at the start of a run is part of its order.
    plain = {nodes: undisturbed(folder, num_canonical_nodes=nodes) for nodes in range(1, 5)}
    changes = 0
    for seed in range(1000):
        nodes, batches, changed = run(folder, seed)
        changes += changed
        assert batches == plain[nodes], seed
    assert changes > 3000


