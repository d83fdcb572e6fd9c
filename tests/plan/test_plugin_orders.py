"""What shuffles, partitions and batching methods return is checked before samples are read."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset, register_shuffle
from streamplug.errors import PluginError
from streamplug.interfaces import Order, ShuffleAlgorithm
from streamplug.plan import PartitionedEpoch, check_ids
from streamplug.plugin.registry import unregister
from streamplug.types import World


class OddOrder(Order):
    def __init__(self, at):
        self._at = at

    def at(self, canonical_node, positions):
        return self._at(positions)

    def find(self, sample):
        return 0, sample


@pytest.fixture
def written(tmp_path):
    with MDSWriter(out=str(tmp_path / "set"), columns={"n": "int"}) as out:
        for n in range(100):
            out.write({"n": n})
    yield str(tmp_path / "set")
    unregister("shuffle", "odd")


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize(
    ("at", "what"),
    [
        (lambda positions: -1 - positions, r"-\d+ in canonical node 0: expected ids in"),
        (lambda positions: positions + 100, r"\d+ in canonical node 0: expected ids in"),
        (np.zeros_like, "an id for several positions of canonical"),
        (lambda positions: positions // 2, "an id for several positions"),
        (lambda positions: positions[:1], r"int64 of shape \(1,\): expected ids"),
        (lambda positions: positions.astype(float), "float64 of shape"),
        (lambda positions: positions.tolist(), "list, not an array"),
        (lambda positions: None, "NoneType, not an array"),
    ],
)
def test_shuffle_that_returns_no_permutation(written, at, what, nodes):
    class Odd(ShuffleAlgorithm):
        def order(self, starts, **options):
            return OddOrder(at)

    register_shuffle("odd", Odd, replace=True)
    dataset = StreamingDataset(
        local=written, shuffle=True, shuffle_algo="odd", batch_size=8, num_canonical_nodes=nodes
    )
    for read in (lambda: list(dataset), lambda: list(dataset.batches())):
        with pytest.raises(PluginError, match=rf"OddOrder: at\(\) returned {what}"):
            read()


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (np.array([[0, 7]]), "returned 7: expected numbers of samples in"),
        (np.array([[-2, 0]]), "returned -2"),
        (np.array([0, 1]), r"int64 of shape \(2,\)"),
        (np.array([[0.0]]), "float64"),
        ([[0]], "list: expected an array"),
    ],
)
def test_ids_of_no_samples(ids, what):
    with pytest.raises(PluginError, match=what):
        check_ids(ids, 1, 7, World())


def test_ids_of_samples():
    check_ids(np.array([[0, 6], [3, -1]]), 2, 7, World())
    check_ids(np.empty((0, 4), np.int64), 0, 7, World())


def test_partition_that_returns_foreign_entries():
    class Partition:
        steps = 1

        def entries(self, world, batch, steps):
            return np.array([[0, 12]])

    class Ordered:
        size = 10

    with pytest.raises(PluginError, match=r"Partition returned 12: expected .*\[0, 10\)"):
        PartitionedEpoch(Ordered(), Partition()).ids(World(), 2, np.array([0]))
