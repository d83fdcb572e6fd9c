"""Options of the orders, and the worlds for which they make batches."""

from __future__ import annotations

import pytest
from streamplug_mosaic.order import MosaicPlanner

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError
from streamplug.plan import Position, Segment
from streamplug.types import World


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(out=str(tmp_path / "set"), columns={"n": "int"}) as out:
        for n in range(100):
            out.write({"n": n})
    return str(tmp_path / "set")


@pytest.mark.parametrize("method", ["sorted", "budget"])
def test_other_batching_methods_are_refused(folder, method):
    with pytest.raises(
        ConfigError,
        match=f"'{method}': partition_algo='orig' has random, stratified, per_stream, device_per_s",
    ):
        StreamingDataset(local=folder, partition_algo="orig", batching_method=method)


def test_a_budget_is_refused(folder):
    with pytest.raises(ConfigError, match="batch_budget= with batching_method='random'"):
        StreamingDataset(local=folder, partition_algo="relaxed", batch_budget={"limit": 1})


@pytest.mark.parametrize(
    ("algo", "method", "nodes", "expected"),
    [
        ("orig", "random", 3, World(2, 2)),
        ("relaxed", "random", 3, World(2, 2)),
        ("relaxed", "stratified", 3, World(3, 2)),
        ("relaxed", "per_stream", 4, World(4, 2)),  # served as it is
        ("relaxed", "per_stream", 3, World(2, 2)),
        ("orig", "per_stream", 3, World(3, 2)),  # which refuses it
        ("relaxed", "device_per_stream", 3, World(3, 2)),
    ],
)
def test_a_state_of_mosaicml_streaming_is_resumed_for_a_world(
    folder, algo, method, nodes, expected
):
    streams = StreamingDataset(local=folder).session.run.planner.streams
    segment = Segment(Position(), World(nodes, 2), 48, 2)
    assert MosaicPlanner(streams, algo, method).begun_on(2, segment).world == expected
