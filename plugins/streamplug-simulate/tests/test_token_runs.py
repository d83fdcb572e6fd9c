"""Simulated runs over rows of tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_simulate import open_dataset, simulate

from streamplug import MDSWriter, StreamingDataset, World
from streamplug.cli import main
from streamplug.errors import ConfigError

pytest.importorskip("streamplug_tokens")

TOKENS = {
    "blocks": {"column": "tokens", "length": 64},
    "packs": {"column": "tokens", "length": 64, "documents_per_group": 8},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return the directory of 300 documents in many shards."""
    out, rng = tmp_path_factory.mktemp("tokens") / "corpus", np.random.default_rng(5)
    with MDSWriter(out=out, columns={"tokens": "ndarray:uint16"}, size_limit=2048) as writer:
        for length in rng.integers(1, 120, 300):
            writer.write({"tokens": rng.integers(1, 1000, length).astype(np.uint16)})
    return out


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_nodes_fetch_the_shards_of_the_documents_in_their_rows(corpus, kind, shuffle):
    section = {"local": str(corpus), "batch_size": 4, "shuffle": shuffle, "tokens": TOKENS[kind]}
    section["shuffle_block_size"] = 30
    with open_dataset({"dataset": section}) as plan:
        result = simulate(plan, plan.scenario(nodes=2))
    world = World(nodes=2, ranks_per_node=1)
    dataset = StreamingDataset.from_config({"dataset": section}, world=world)
    index = json.loads((corpus / "index.json").read_text())
    sizes = {shard["raw_data"]["basename"]: shard["raw_data"]["bytes"] for shard in index["shards"]}
    steps = -(-dataset.size // 8)
    for rank, node in enumerate(result.nodes):
        uses = [use for step in range(steps) for use in dataset.explain(step, epoch=0, rank=rank)]
        files = {span.file for use in uses for span in dataset.document_spans(use.sample)}
        assert node.bytes == sum(sizes[file] for file in files)
    assert result.samples == dataset.size
    assert [epoch.steps for epoch in result.epochs] == [steps]
    assert result.complete
    if shuffle:
        assert sum(node.bytes for node in result.nodes) > result.stored_bytes


def test_the_command_simulates_a_config_of_tokens(corpus, tmp_path):
    path = tmp_path / "train.json"
    section = {"local": str(corpus), "batch_size": 4, "tokens": TOKENS["blocks"]}
    path.write_text(json.dumps({"dataset": section, "loader": {"num_workers": 2}}))
    done = CliRunner().invoke(main, ["simulate", str(path), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["egress"] == found["stored_bytes"]
    assert found["samples"] == StreamingDataset.from_config(path, batch_size=1).size


def test_tokens_that_are_not_installed_are_named(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    config = {"local": str(corpus), "batch_size": 4, "tokens": TOKENS["blocks"]}
    with (
        pytest.raises(ConfigError, match=r"^tokens is in streamplug-tokens, which is not inst"),
        open_dataset(config),
    ):
        pass
