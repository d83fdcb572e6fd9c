"""Simulations beside runs: what nodes fetch, to the byte. How long it takes: `tox -c tests -e simulate`."""

from __future__ import annotations

import pytest

pytest.importorskip("aiohttp")

RUNS = {
    "one node, as stored": {},
    "two nodes, shuffled": {"nodes": 2, "shuffle": "window", "block_size": 80},
    "two ranks, two epochs, shuffled": {
        "ranks_per_node": 2,
        "epochs": 2,
        "shuffle": "global",
    },
    "a cache with a limit, two epochs": {"cache_limit": 200_000, "epochs": 2},
    "a limit, shuffled": {"cache_limit": 500_000, "shuffle": "window", "block_size": 40},
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_each_node_fetches_what_is_simulated_to_the_byte(
    plan, run, real_run, written, tmp_path, settings
):
    fast = {**settings, "bandwidth": 2e7, "latency": 0.001, "step_seconds": 0.0}
    found = run(**fast)
    real = real_run(written, tmp_path, plan.scenario(**fast))
    assert real["bytes"] == [node.bytes for node in found.nodes]
    assert found.complete
    assert found.egress == sum(real["bytes"])
