from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from streamplug_testing.shuffle import ShuffleTests

from streamplug.interfaces import ShuffleAlgorithm
from streamplug.interfaces.shuffle import ArrayOrder


class TestNone(ShuffleTests):
    name = "none"
    shuffles = False
    golden: ClassVar = {
        "small": "7270490e6074389d",
        "uneven": "45b8d516d027b153",
        "canonical_nodes": "45b8d516d027b153",
        "epoch": "45b8d516d027b153",
        "seed": "45b8d516d027b153",
        "large": "1e1067546a0573ba",
    }


class TestWindow(ShuffleTests):
    name = "window"
    golden: ClassVar = {
        "small": "18dec8d96f14f612",
        "uneven": "46e62e979537e279",
        "canonical_nodes": "7c8dbfd6ee82386b",
        "epoch": "3aa6e125bbb93994",
        "seed": "abfcf57bd405584d",
        "large": "e26505f651e009de",
    }


class TestGlobal(ShuffleTests):
    name = "global"
    golden: ClassVar = {
        "small": "bb9244b02fe1502a",
        "uneven": "39583831ef36f0f4",
        "canonical_nodes": "39583831ef36f0f4",
        "epoch": "4fbddb2f577bff34",
        "seed": "06f4ea03063fa396",
        "large": "ef21cbd9824cf179",
    }
    deviations: ClassVar = {
        "test_canonical_nodes_keep_their_samples_from_epoch_to_epoch": "it mixes over all shards"
    }


class Whole(ShuffleAlgorithm):
    """A shuffle that is computed whole, as the simplest plugin would do it."""

    def order(self, starts, *, canonical_nodes, seed, epoch, block_size):
        generator = np.random.Generator(np.random.Philox(key=[seed % (1 << 64), epoch]))
        return ArrayOrder(generator.permutation(int(starts[-1])), canonical_nodes)


class TestEager(ShuffleTests):
    cls = Whole
    eager = True
    deviations: ClassVar = {
        "test_canonical_nodes_keep_their_samples_from_epoch_to_epoch": "it mixes over all shards"
    }


class Twice(Whole):
    """Loses a sample, and gives another one twice."""

    def order(self, starts, **arguments):
        ids = np.arange(int(starts[-1]), dtype=np.int64)
        ids[-1] = 0
        return ArrayOrder(ids, arguments["canonical_nodes"])


class Forgetful(Whole):
    """Gives something else each time."""

    def order(self, starts, **arguments):
        ids = np.random.default_rng().permutation(int(starts[-1]))
        return ArrayOrder(ids, arguments["canonical_nodes"])


class Unmoved(Whole):
    """Takes no notice of the epoch."""

    def order(self, starts, **arguments):
        return super().order(starts, **{**arguments, "epoch": 0})


class LowBits(Whole):
    """Uses a part of the seed."""

    def order(self, starts, **arguments):
        return super().order(starts, **{**arguments, "seed": arguments["seed"] & 255})


class Parity(Whole):
    """Has two orders."""

    def order(self, starts, **arguments):
        return super().order(starts, **{**arguments, "epoch": arguments["epoch"] % 2})


@pytest.mark.parametrize(
    ("faulty", "test"),
    [
        (Twice, "test_every_sample_comes_once"),
        (Forgetful, "test_instances_agree"),
        (Forgetful, "test_another_process_agrees"),
        (Unmoved, "test_order_differs_by_seed_and_epoch"),
        (LowBits, "test_order_differs_by_seed_and_epoch"),
        (Parity, "test_order_differs_by_seed_and_epoch"),
        (Whole, "test_canonical_nodes_keep_their_samples_from_epoch_to_epoch"),
        (Whole, "test_far_positions_cost_no_more"),
    ],
)
def test_the_kit_finds_faults(faulty, test):
    tests = type("Tests", (ShuffleTests,), {"cls": faulty})()
    with pytest.raises((AssertionError, MemoryError)):
        getattr(tests, test)()
