"""What a simulation says, held against what must be so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from streamplug_simulate import Scenario, open_dataset, simulate
from streamplug_simulate.arguments import parse_arguments

from streamplug import MDSWriter
from streamplug.errors import ConfigError, PluginError


def test_a_fast_network_never_holds_up_a_slow_loop(run, plan):
    found = run(bandwidth=1e12, latency=0.0, step_seconds=1.0)
    [epoch] = found.epochs
    assert (epoch.steps, epoch.simulated) == (40, 40)
    assert epoch.seconds == pytest.approx(40, abs=0.01)
    assert epoch.first_batch + epoch.waited < 0.01
    assert found.egress == epoch.bytes == epoch.all_bytes == plan.shards.stored.sum()


def test_a_slow_network_is_what_a_run_takes(run, plan):
    found = run(bandwidth=50_000, latency=0.0, step_seconds=0.001)
    assert found.epochs[0].seconds == pytest.approx(plan.shards.stored.sum() / 50_000, rel=0.05)


def test_workers_are_ahead_while_the_loop_steps(run):
    slow = {"bandwidth": 300_000, "step_seconds": 0.1, "predownload": 0}
    alone, helped = run(**slow), run(**slow, workers=2)
    assert helped.epochs[0].waited < alone.epochs[0].waited / 2


def test_the_second_epoch_fetches_only_what_is_not_there(run):
    without, limited = run(epochs=2), run(epochs=2, cache_limit=200_000)
    assert [epoch.bytes > 0 for epoch in without.epochs] == [True, False]
    assert limited.epochs[0].bytes == limited.epochs[1].bytes == without.egress
    assert without.nodes[0].evictions == 0
    assert limited.nodes[0].evictions > 40
    assert max(limited.series["held"]["node 0"]) <= 200_000


def test_each_node_pays_for_its_part(run):
    found = run(nodes=4, price=0.5, shuffle="window", block_size=40)
    assert len(found.nodes) == 4
    assert found.egress == sum(node.bytes for node in found.nodes)
    assert found.cost == pytest.approx(found.egress / 1e9 * 0.5)
    assert list(found.series["fetched"]) == [f"node {n}" for n in range(4)]
    assert [line[-1] for line in found.series["fetched"].values()] == [n.bytes for n in found.nodes]
    many = run(nodes=8)
    assert list(many.series["fetched"]) == ["least of a node", "mean", "most of a node"]


def test_what_is_simulated_in_part_says_so_and_estimates_the_rest(run):
    whole, part = run(bandwidth=1e6), run(max_needs=30, bandwidth=1e6, predownload=20)
    [epoch] = part.epochs
    assert not part.complete
    assert 0 < epoch.simulated < epoch.steps
    assert epoch.bytes < epoch.all_bytes == pytest.approx(whole.egress, rel=0.05)
    assert f"the first {epoch.simulated} of the 40 steps" in part.notes[0]
    later = run(max_needs=30, epochs=3, bandwidth=1e6)
    assert len(later.epochs) == 1
    assert later.egress == 3 * later.epochs[0].all_bytes


def test_a_run_of_epochs_of_one_step_ends_at_the_limit_of_needs(run):
    found = run(max_needs=30, batch_size=400, epochs=10**6)
    assert len(found.epochs) == 1
    assert not found.complete
    assert found.egress == 10**6 * found.epochs[0].all_bytes
    assert "the first 1 of the 1,000,000 epochs" in found.notes[0]


def test_files_that_a_scan_writes_do_not_leave_the_storage(tmp_path):
    pytest.importorskip("streamplug_text")
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{n},{n}\n" for n in range(100)))
    with open_dataset({"remote": str(tmp_path), "format": "csv", "batch_size": 10}) as plan:
        found = simulate(plan, plan.scenario())
    assert found.egress == found.stored_bytes == (tmp_path / "a.csv").stat().st_size


def test_no_more_is_estimated_than_there_is(run, plan):
    found = run(max_needs=100, shuffle="global")
    assert found.epochs[0].all_bytes == plan.shards.stored.sum()
    limited = run(max_needs=100, shuffle="global", cache_limit=200_000)
    assert limited.epochs[0].all_bytes > plan.shards.stored.sum()


def test_a_shuffle_is_measured(run):
    stored, mixed = run(), run(shuffle="global")
    assert stored.quality.displacement == 0
    assert mixed.quality.displacement == pytest.approx(400 / 3, rel=0.2)
    assert mixed.quality.same_shard < 0.2 < stored.quality.same_shard


def test_compressed_shards_travel_small_and_lie_large(tmp_path):
    with MDSWriter(
        out=tmp_path, columns={"n": "int", "b": "bytes"}, size_limit=9000, compression="gz"
    ) as out:
        for n in range(200):
            out.write({"n": n, "b": bytes(300)})
    with open_dataset({"remote": str(tmp_path), "batch_size": 10}) as plan:
        found = simulate(plan, plan.scenario())
        assert found.egress == plan.shards.stored.sum() < plan.shards.raw.sum() / 5
        assert found.series["held"]["node 0"][-1] == plan.shards.raw.sum()
    with open_dataset({"remote": str(tmp_path), "batch_size": 10, "keep_zip": True}) as plan:
        found = simulate(plan, plan.scenario())
        both = plan.shards.raw.sum() + plan.shards.stored.sum()
        assert found.series["held"]["node 0"][-1] == both


def test_replicas_share_what_they_read(written):
    config = {"remote": str(written), "batch_size": 10, "replication": 2}
    with open_dataset(config) as plan:
        found = simulate(plan, plan.scenario(nodes=2, ranks_per_node=2))
        assert found.epochs[0].steps == 20
        assert sum(node.bytes for node in found.nodes) < 1.1 * plan.shards.stored.sum()
        apart = simulate(plan, plan.scenario(nodes=2, ranks_per_node=1))
        assert [node.bytes for node in apart.nodes] == 2 * [plan.shards.stored.sum()]


def test_an_uneven_end_holds_nobody_up(written):
    pytest.importorskip("streamplug_mosaic")
    config = {"remote": str(written), "batch_size": 7, "partition_algo": "orig"}
    with open_dataset(config) as plan:
        found = simulate(plan, plan.scenario(nodes=2, workers=3, epochs=2))
        assert [epoch.simulated for epoch in found.epochs] == [
            epoch.steps for epoch in found.epochs
        ]


def test_a_config_says_what_nobody_else_does(written, tmp_path):
    config = {
        "dataset": {
            "remote": str(written), "local": str(tmp_path / "cache"), "cache_limit": "300kb", "shuffle": True,
            "shuffle_algo": "global", "shuffle_block_size": 50, "num_canonical_nodes": 4, "predownload": 30,
        },
        "loader": {"batch_size": 20, "num_workers": "${env:WORKERS:-3}", "prefetch_factor": 4},
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with open_dataset(str(path)) as plan:
        assert plan.scenario() == Scenario(
            batch_size=20, workers=3, prefetch_factor=4, shuffle="global", block_size=50,
            canonical_nodes=4, predownload=30, cache_limit=300 * 1024,
        )  # fmt: skip
        changed = plan.scenario(shuffle="none", cache_limit=None, workers=0)
        assert (changed.shuffle, changed.cache_limit, changed.workers) == (None, None, 0)
        assert not simulate(plan, changed).nodes[0].evictions
    assert not (tmp_path / "cache").exists()


def test_a_misspelt_key_of_the_loader_is_refused(written):
    pytest.importorskip("torch")
    config = {"dataset": {"remote": str(written), "batch_size": 8}, "loader": {"num_worker": 2}}
    message = r"loader\.num_worker: no such key.*'num_workers'"
    with pytest.raises(ConfigError, match=message), open_dataset(config):
        pass


def test_streams_with_caches_of_their_own_have_room_each(written, tmp_path):
    def config(*limits):
        streams = [
            {"remote": str(written), "local": str(tmp_path / str(n)), "cache_limit": limit}
            for n, limit in enumerate(limits)
        ]
        return {"streams": streams, "batch_size": 10}

    with open_dataset(config(200_000, 200_000)) as plan:
        found = simulate(plan, plan.scenario())
        assert 200_000 < max(found.series["held"]["node 0"]) <= 400_000
    with open_dataset(config(200_000, 300_000)) as plan:
        with pytest.raises(ConfigError, match="different cache limits"):
            plan.scenario()
        assert plan.scenario(cache_limit=250_000).cache_limit == 250_000


@pytest.mark.parametrize("cache", [True, False])
def test_streams_of_one_data_set_in_one_cache_share_its_shards(written, plan, tmp_path, cache):
    """Also streams that are read in place, as if they were remote."""
    more = {"local": str(tmp_path / "cache")} if cache else {}
    ids = [list(range(first, 400, 2)) for first in range(2)]
    streams = [{"remote": str(written), "select": part, **more} for part in ids]
    with open_dataset({"streams": streams, "batch_size": 10, "shuffle": True}) as both:
        found = simulate(both, both.scenario(ranks_per_node=2))
        assert found.stored_bytes == plan.shards.stored_bytes == found.egress
        assert found.shards == len(plan.shards) == found.nodes[0].shards
        assert found.series["held"]["node 0"][-1] == plan.shards.raw_bytes
        held = plan.shards.raw_bytes // 2
        limited = simulate(both, both.scenario(ranks_per_node=2, cache_limit=held))
        assert limited.egress > found.egress
        assert max(limited.series["held"]["node 0"]) <= held
    apart = [{**stream, "local": str(tmp_path / str(n))} for n, stream in enumerate(streams)]
    with open_dataset({"streams": apart, "batch_size": 10}) as both:
        assert simulate(both, both.scenario()).egress == 2 * plan.shards.stored_bytes


def test_nothing_is_read_but_the_index(written, tmp_path):
    (tmp_path / "index.json").write_bytes((written / "index.json").read_bytes())
    with open_dataset({"local": str(tmp_path), "batch_size": 10, "callbacks": ["nobody"]}) as plan:
        found = simulate(plan, plan.scenario())
    assert found.shards == 29
    assert "as if it were downloaded" in " ".join(found.notes)
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]


def test_what_cannot_be_simulated_is_refused(written):
    with (
        pytest.raises(ConfigError, match=r"access='range' does not cache all shards"),
        open_dataset({"remote": str(written), "access": "range"}),
    ):
        pass
    with open_dataset({"remote": str(written)}) as plan:
        with pytest.raises(ConfigError, match="no batch size"):
            plan.scenario()
        with pytest.raises(ConfigError, match="one shard alone takes"):
            simulate(plan, plan.scenario(batch_size=10, cache_limit=10))
        with pytest.raises(PluginError):
            simulate(plan, plan.scenario(batch_size=10, shuffle="unheard-of"))


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"nodes": 0}, "at least 1"),
        ({"block_size": 0}, "at least 1"),
        ({"workers": -1}, "at least 0"),
        ({"predownload": -1}, "at least 0"),
        ({"latency": float("nan")}, "must be a number from 0 to 1e"),
        ({"price": 1e300}, "must be a number from 0 to 1e"),
        ({"latency": None}, "must be a number from 0 to 1e"),
        ({"nodes": "a"}, "must be a whole number"),
        ({"epochs": None}, "must be a whole number"),
        ({"bandwidth": "fast"}, "at least 1 byte per second"),
        ({"batch_size": 10**15}, "must be at most 2147483647"),
        ({"nodes": 10**4, "workers": 10**4}, "nodes=10000, .*workers=10000: must be at most"),
        ({"bandwidth": 0.5}, "at least 1 byte per second"),
    ],
)
def test_what_has_no_meaning_is_refused(wrong, rule):
    with pytest.raises(ConfigError, match=rule):
        Scenario(**wrong)


def test_texts_mean_numbers_sizes_and_words():
    texts = {
        "nodes": "4", "cache_limit": "2gb", "bandwidth": " 10mb ", "step_seconds": "0.25",
        "predownload": "auto", "block_size": "default", "shuffle": "window", "epochs": "", "price": None,
    }  # fmt: skip
    assert parse_arguments(texts) == {
        "nodes": 4, "cache_limit": 2 << 30, "bandwidth": 10 << 20, "step_seconds": 0.25,
        "predownload": None, "block_size": None, "shuffle": "window",
    }  # fmt: skip
    for name, text in (
        ("latency", "soon"),
        ("nodes", "many"),
        ("cache_limit", "50%"),
        ("colour", "1"),
    ):
        with pytest.raises(ConfigError, match=name):
            parse_arguments({name: text})


def test_only_the_shards_of_selected_samples_are_fetched(written):
    """A run over the rows of the first and the last shard fetches these two on one node."""
    with open_dataset({"remote": str(written), "batch_size": 2}) as plan:
        sizes = plan.shards.sizes
        counts = np.diff(plan.starts)
        last = int(plan.starts[-2])
    rows = [*range(int(counts[0])), *range(last, last + int(counts[-1]))]
    with open_dataset({"remote": str(written), "batch_size": 2, "select": rows}) as plan:
        result = simulate(plan, plan.scenario(), 10**6)
    assert result.samples == len(rows)
    assert result.egress == sizes(0).stored + sizes(len(counts) - 1).stored


@pytest.mark.parametrize(("nodes", "part", "most"), [(4, 4, 3.3), (1, 5, 3.3), (8, 16, 3.3)])
def test_defaults_fit_into_small_caches(tmp_path, nodes, part, most):
    with MDSWriter(columns={"n": "int"}, out=tmp_path, max_samples_per_shard=47) as out:
        out.write_batch({"n": np.arange(10_000)})
    with open_dataset({"remote": str(tmp_path), "batch_size": 10, "shuffle": True}) as plan:
        limit = int(plan.shards.stored.sum()) // part
        scenario = {"nodes": nodes, "epochs": 3, "cache_limit": limit}
        found = simulate(plan, plan.scenario(**scenario))
        without = simulate(plan, plan.scenario(**scenario, block_size=1 << 18))
    assert found.egress <= most * found.stored_bytes
    assert without.egress > 2 * found.egress
