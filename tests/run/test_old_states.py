"""States of the version before, which named each value by a key of its own, go on as they would have."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from streamplug import Stream, StreamingDataset, World
from tests.mixing import HAS_MIXING
from tests.run.numbered_streams import write_numbered
from tests.states import values

SIZES = (70, 30, 100)
CASES = json.loads((Path(__file__).parents[1] / "golden" / "states_v1.json").read_bytes())


HAS_MOSAIC = find_spec("streamplug_mosaic") is not None


def has_plugins(case):
    """Return whether the plugins are installed that make the order of a case."""
    options = case["options"]
    if "partition_algo" in options or "py1" in options.get("shuffle_algo", ""):
        return HAS_MOSAIC
    is_random = options.get("batching_method", "random") == "random"
    return HAS_MIXING or (is_random and "curriculum" not in case["state"])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_numbered(tmp_path_factory.mktemp("streams"), SIZES)


def ranks_of(folders, case, state, world):
    options = {"shuffle": True, "shuffle_block_size": 50, "num_canonical_nodes": 2}
    runs = [
        StreamingDataset(
            streams=[Stream(local=f, **w) for f, w in zip(folders, case["weights"])],
            world=World(*world, rank=rank),
            batch_size=16 // (world[0] * world[1]),
            **{**options, **case["options"]},
        )
        for rank in range(world[0] * world[1])
    ]
    for run in runs:
        run.load_state_dict(state)
    return runs


def epoch_of(runs):
    parts = [
        [list(zip(b["stream"].tolist(), b["n"].tolist())) for b in run.batches()] for run in runs
    ]
    return [sorted(list(sample) for part in step for sample in part) for step in zip(*parts)]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_state_of_version_1_goes_on(folders, case):
    if not has_plugins(case):
        pytest.skip("a plugin of its order is not installed")
    assert case["state"]["version"] == 1
    elastic = "partition_algo" not in case["options"]
    for world in (case["world"], [1, 4]) if elastic else (case["world"],):
        runs = ranks_of(folders, case, case["state"], world)
        state = json.loads(json.dumps(runs[0].state_dict()))
        assert epoch_of(runs) == case["rest"]
        assert epoch_of(runs)[:3] == case["next"]
        again = ranks_of(folders, case, state, world)
        assert again[0].state_dict() == state
        assert epoch_of(again) == case["rest"]


def test_states_have_the_same_keys_at_any_position(folders):
    keys = set()
    for case in filter(has_plugins, CASES):
        [run, *_] = ranks_of(folders, case, case["state"], case["world"])
        state = run.state_dict()
        keys.add(tuple(state))
        assert all(type(value) in (int, str) for value in state.values())
        assert values(state)["version"] == 2
    assert len(keys) == 1
