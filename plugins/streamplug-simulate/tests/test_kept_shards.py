"""Ten epochs on nodes whose disks hold their share of the set: what they fetch, and how that mixes."""

from __future__ import annotations

import numpy as np
import pytest
from streamplug_simulate import open_dataset, simulate
from streamplug_simulate.measures import make_epoch, measure, measure_kept_samples
from streamplug_simulate.tables import print_result

from streamplug import MDSWriter
from streamplug.plugin import make
from streamplug.types import World

NODES, SHARDS, EACH = 8, 160, 10


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    out = tmp_path_factory.mktemp("kept") / "set"
    with MDSWriter(out=out, columns={"n": "int", "b": "bytes"}, size_limit=5200) as writer:
        for n in range(SHARDS * EACH):
            writer.write({"n": n, "b": bytes(480)})
    options = {"remote": str(out), "batch_size": 5, "shuffle": True, "shuffle_block_size": 40}
    with open_dataset(options) as plan:
        assert plan.num_shards == SHARDS
        yield plan


def run(plan, **changes):
    margin = 2 * plan.shards.largest  # for shards with a border inside
    limit = -(-int(plan.shards.stored.sum()) // NODES) + margin
    settings = {"nodes": NODES, "epochs": 10, "cache_limit": limit, "step_seconds": 0, **changes}
    return simulate(plan, plan.scenario(**settings), 10**7)


def test_ten_epochs_fetch_the_set_once(plan, capsys):
    found = run(plan)
    assert found.complete
    assert found.egress <= 1.05 * found.stored_bytes
    assert [epoch.bytes for epoch in found.epochs[1:]] == [0] * 9
    print_result(found)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"egress {found.egress:,} bytes over 10 epochs; 0 in each later epoch" in shown


def test_disks_below_the_share_fetch_again(plan):
    share = int(plan.shards.stored.sum()) // NODES
    found = run(plan, cache_limit=share - plan.shards.largest)
    assert found.egress > 1.05 * found.stored_bytes


def test_a_global_order_fetches_the_set_for_each_node_and_epoch(plan):
    found = run(plan, shuffle="global", epochs=2)
    assert found.egress > 2 * 4 * found.stored_bytes


@pytest.mark.parametrize(("shuffle", "kept"), [("window", 1), ("none", 1), ("global", 1 / 8)])
def test_kept_samples_are_what_is_lost_in_mixing(shuffle, kept):
    starts, world = np.arange(SHARDS + 1) * 50, World(NODES, 2)
    options = {"canonical_nodes": NODES, "block_size": 400}
    epochs = [
        make_epoch(starts, make("shuffle", shuffle), world, 4, epoch=epoch, **options)
        for epoch in range(2)
    ]
    found = measure_kept_samples(*epochs, world, int(starts[-1]))
    assert found == pytest.approx(kept, abs=0.02)
    # A global batch still has samples of all nodes: it draws from as many shards as the blocks hold.
    if shuffle == "window":
        quality = measure(epochs[0], world, starts)
        assert quality.shards_per_batch > 0.6 * world.ranks * 4
