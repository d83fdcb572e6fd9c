"""What shuffles and orders return is checked before samples are read."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset, register_shuffle
from streamplug.errors import ConfigError, PluginError
from streamplug.interfaces import Permutation, ShuffleAlgorithm
from streamplug.plan import (
    Epoch,
    Planner,
    Position,
    Segment,
    checked_batches,
    checked_epoch,
    checked_identity,
)
from streamplug.plugin.registry import unregister
from streamplug.types import World


class OddOrder(Permutation):
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


class OddEpoch(Epoch):
    units, global_batch = range(20), 4

    def __init__(self, result):
        self._result = result

    def ids(self, world, steps):
        return self._result

    def where(self, world, sample):
        return []


IDS, OFFSETS = np.array([0, 6, 3]), np.array([0, 1, 3])


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ((np.array([0, 7, 1]), OFFSETS), "returned 7: expected sample ids in"),
        ((np.array([-1, 0, 1]), OFFSETS), "returned -1: expected sample ids in"),
        ((IDS.reshape(1, 3), OFFSETS), r"returned ids of int64 of shape \(1, 3\)"),
        ((IDS.astype(float), OFFSETS), "returned ids of float64"),
        ((IDS.tolist(), OFFSETS), "returned ids of list"),
        ((IDS, OFFSETS[:2]), "returned 2 offsets"),
        ((IDS, OFFSETS + 1), "returned 3 offsets from .1. to .4. for 2 steps and 3 ids"),
        ((IDS, np.array([0, 4, 3])), "offsets that decrease"),
        (IDS, "returned ndarray: expected ids and offsets"),
        (None, "returned NoneType: expected ids and offsets"),
    ],
)
def test_batches_of_no_samples(result, what):
    with pytest.raises(PluginError, match=rf"OddEpoch: ids\(\) .*{what}"):
        checked_batches(OddEpoch(result), World(), np.arange(2), 7)


def test_batches_of_samples():
    for ids, offsets in ((IDS, OFFSETS), (IDS[:0], np.array([0, 0, 0]))):
        assert checked_batches(OddEpoch((ids, offsets)), World(), np.arange(2), 7) == (ids, offsets)


def test_ranks_must_divide_a_global_batch():
    with pytest.raises(ConfigError, match="a global batch of 4 cannot be divided among 3 ranks"):
        OddEpoch(None).units_per_step(World(3))


class OddPlanner(Planner):
    def __init__(self, epoch, identity=None):
        self._result, self._identity = epoch, identity

    def epoch(self, number, segments):
        return self._result

    def identity(self, segment):
        return self._identity


@pytest.mark.parametrize("attributes", [{"units": 20}, {"global_batch": 0}, {"global_batch": None}])
def test_epochs_that_are_none(attributes):
    wrong = type("WrongEpoch", (OddEpoch,), attributes)(None)
    for epoch, what in ((None, "NoneType: expected an Epoch"), (wrong, "an Epoch with units=")):
        with pytest.raises(PluginError, match=rf"OddPlanner: epoch\(\) returned {what}"):
            checked_epoch(OddPlanner(epoch), 0, [])
    assert isinstance(checked_epoch(OddPlanner(OddEpoch(None)), 0, []), OddEpoch)


def test_identities_are_what_a_state_will_have():
    segment = Segment(Position(), World(), 4, 1)
    assert checked_identity(OddPlanner(None, {"a": (1, 2)}), segment) == {"a": [1, 2]}
    for identity in ({"a": {1}}, {"a": np.int64(3)}):
        with pytest.raises(PluginError, match=r"OddPlanner: identity\(\) returned .*JSON"):
            checked_identity(OddPlanner(None, identity), segment)
