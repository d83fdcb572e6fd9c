"""A data set to simulate, opened for it, and what makes a run real."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from streamplug_simulate import open_dataset, simulate

from streamplug import MDSWriter

HERE = Path(__file__).parent
SAMPLES = 400


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Return the directory of a set of 400 samples in some 40 shards."""
    out, random = tmp_path_factory.mktemp("simulated") / "set", np.random.default_rng(7)
    with MDSWriter(out=out, columns={"n": "int", "b": "bytes"}, size_limit=25_000) as writer:
        for n in range(SAMPLES):
            writer.write({"n": n, "b": random.bytes(1500 + n)})
    return out


@pytest.fixture
def plan(written):
    with open_dataset({"remote": str(written), "batch_size": 10}) as plan:
        yield plan


@pytest.fixture
def run(plan):
    """Return a function that simulates a run."""
    return lambda max_needs=10**6, **settings: simulate(plan, plan.scenario(**settings), max_needs)


@pytest.fixture(scope="session")
def real_run():
    """Return the function that has a run really run, of a module that its processes can import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield importlib.import_module("real_run").run
