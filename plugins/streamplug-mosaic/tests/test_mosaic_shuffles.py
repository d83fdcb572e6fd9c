"""The orders of mosaicml-streaming 0.13, recorded with numpy 2.1.3, and the kit's own tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from streamplug_testing import ShuffleTests

from streamplug.interfaces import Permutation
from streamplug.interfaces.shuffle import canonical_node_bounds
from streamplug.plugin import make

GOLDEN = json.loads((Path(__file__).parent / "mosaic_orders.json").read_text())
NAMES = ("naive", "py1s", "py2s", "py1br", "py1e")


def order(
    name: str, sizes: list[int], canonical_nodes: int, seed: int, epoch: int, block: int
) -> Permutation:
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    return make("shuffle", name).order(
        starts, canonical_nodes=canonical_nodes, seed=seed, epoch=epoch, block_size=block
    )


@pytest.mark.parametrize("case", GOLDEN)
def test_the_order_is_that_of_mosaicml_streaming(case):
    canonical_nodes, total = case["ncn"], sum(case["sizes"])
    found = order(
        case["algo"], case["sizes"], canonical_nodes, case["seed"], case["epoch"], case["block"]
    )
    lengths = np.diff(canonical_node_bounds(total, canonical_nodes)).tolist()
    ids = np.concatenate(
        [found.take(canonical_node, 0, n) for canonical_node, n in enumerate(lengths)]
    )
    assert hashlib.sha1(ids.astype("<i8").tobytes()).hexdigest() == case["sha1"]


def test_defaults_are_those_of_mosaicml_streaming():
    canonical_nodes = {name: make("shuffle", name).default_canonical_nodes(2) for name in NAMES}
    assert canonical_nodes == {"naive": 2, "py1s": 128, "py2s": 128, "py1br": 2, "py1e": 2}
    assert make("shuffle", "py1e").default_block_size(2) == 2_000_000
    assert make("shuffle", "py1s").default_block_size(128) == 1 << 18


class _Tests(ShuffleTests):
    eager = True


class TestPy1s(_Tests):
    name = "py1s"


class TestPy2s(_Tests):
    name = "py2s"


class TestPy1br(_Tests):
    name = "py1br"


class TestPy1e(_Tests):
    name = "py1e"


class TestNaive(_Tests):
    name = "naive"
    deviations: ClassVar = {
        "test_canonical_nodes_keep_their_samples_from_epoch_to_epoch": "it mixes over all shards",
        "test_order_differs_by_seed_and_epoch": "it knows seed + epoch only",
    }
