"""``streamplug explain`` of batches of limited cost."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, StreamingDataset, World
from streamplug.cli import main

pytest.importorskip("streamplug_tools")


def explain(*arguments):
    result = CliRunner().invoke(main, ["explain", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"tokens": "ndarray:uint16"}) as out:
        for length in range(1, 200):
            out.write({"tokens": np.zeros(length, np.uint16)})
    return str(tmp_path / "set")


def save_state(folder, tmp_path, measure="length"):
    budget = {"limit": 500, "column": "tokens", "measure": measure}
    dataset = StreamingDataset(
        local=folder, shuffle=True, batching_method="budget", batch_budget=budget, batch_size=6
    )
    path = tmp_path / "state.json"
    path.write_text(json.dumps(dataset.state_dict()))
    return dataset, path


def test_a_state_tells_the_batches(folder, tmp_path):
    dataset, path = save_state(folder, tmp_path)
    expected = [use.sample for use in dataset.explain(2)]
    code, output = explain(folder, "--step", 2, "--state", path, "--json")
    assert code == 0, output
    assert [use["sample"] for use in json.loads(output)] == expected
    code, output = explain(folder, "--sample", expected[0], "--state", path, "--json")
    assert [use["step"] for use in json.loads(output)] == [2]
    code, output = explain(folder, "--step", 2, "--state", path, "--batch-size", 3)
    assert code == 2
    assert "--batch-size: not with a --state that defines it" in output


def test_a_changed_state_does_not_allow_pickles(folder, tmp_path):
    _, path = save_state(folder, tmp_path)
    with MDSWriter(out=tmp_path / "pickled", columns={"tokens": "pkl"}) as out:
        for length in range(1, 200):
            out.write({"tokens": [0] * length})
    state = json.loads(path.read_text())
    order = json.loads(state["order"])
    del order["batch_budget"]
    path.write_text(json.dumps({**state, "order": json.dumps(order)}))
    code, output = explain(tmp_path / "pickled", "--step", 2, "--state", path)
    assert code == 2
    assert "'pkl' can run code from the data" in output


def test_what_a_file_does_not_have_is_said(folder, tmp_path):
    _, path = save_state(folder, tmp_path, measure=len)
    code, output = explain(folder, "--step", 2, "--state", path)
    assert code == 2
    assert "whose samples a function measured" in output
    code, output = explain(folder, "--step", 2, "--batching", "budget")
    assert code == 2
    assert "--batching=budget: its options are in a config file or a state" in output


def test_a_run_is_simulated(folder, tmp_path):
    pytest.importorskip("streamplug_simulate")
    config = {
        "dataset": {
            "local": folder,
            "shuffle": True,
            "batching_method": "budget",
            "batch_budget": {"limit": 500, "column": "tokens"},
        }
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    command = ["simulate", str(path), "--ranks-per-node", "4", "--json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    dataset = StreamingDataset(**config["dataset"], world=World(ranks_per_node=4))
    steps = dataset.session.run.steps(World(ranks_per_node=4))
    assert [epoch["steps"] for epoch in found["epochs"]] == [steps]
    assert 0 < found["quality"]["displacement"] < 199
    refused = CliRunner().invoke(main, [*command, "--batch-size", "8"])
    assert refused.exit_code == 2
    assert "batches of a budget have as many samples as it allows" in refused.output
