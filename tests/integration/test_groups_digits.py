"""A network that is trained on any number of ranks, and across a kill, has the same losses."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import warm_python

torch = pytest.importorskip("torch")
if find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "digits.py"
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
EPOCHS = 3 if SOAK else 2
STEPS = 29 * EPOCHS


def options(place: Path, name: str, **more: object) -> list[str]:
    settings = {"data": place / "digits", "checkpoint": place / f"{name}.pt", "epochs": EPOCHS}
    return [f"--{key}={value}" for key, value in {**settings, **more}.items()]


def losses(place: Path, name: str) -> list[float]:
    path = place / f"{name}.pt"
    return torch.load(path)["losses"] if path.exists() else []


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("digits")


@pytest.fixture
def alone(place, start_group) -> list[float]:
    """The losses of a single process, which also writes the data set."""
    if not losses(place, "alone"):
        start_group(EXAMPLE, *options(place, "alone")).wait()
    found = losses(place, "alone")
    assert len(found) == STEPS
    assert sum(found[-29:]) < sum(found[:29]) / 3  # it does learn
    return found


# Two ranks are those of the example below.
@pytest.mark.skipif(not SOAK, reason="runs with STREAMPLUG_TEST_SOAK")
@pytest.mark.parametrize("nodes", [(1, 1), (4,), (2, 2), (8,)], ids=str)
def test_losses_do_not_depend_on_the_number_of_ranks(place, alone, start_group, nodes):
    name = "ranks-" + "-".join(map(str, nodes))
    start_group(EXAMPLE, *options(place, name), nodes=nodes).wait()
    assert losses(place, name) == pytest.approx(alone, rel=0, abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after"), [(4, 8), (8, 1), (1, 4)] if SOAK else [(2, 4)], ids=str
)
def test_losses_continue_where_a_killed_group_stood(place, alone, start_group, before, after):
    name = f"killed-{before}-{after}"
    doomed = start_group(
        EXAMPLE,
        *options(place, name, epochs=1000, workers=2 if SOAK else 1, every=4),
        nodes=(before,),
    )
    doomed.wait_for(lambda: len(losses(place, name)) >= 20)
    doomed.kill()
    assert 20 <= len(losses(place, name)) < STEPS
    start_group(EXAMPLE, *options(place, name, workers=1 if SOAK else 0), nodes=(after,)).wait()
    assert losses(place, name) == pytest.approx(alone, rel=0, abs=1e-6)


def test_the_example_runs_as_it_says(place, alone):
    said = EXAMPLE.read_text().split("\n    torchrun ")[1].split(" docs/")[0].split()
    assert said == ["--nproc-per-node", "4"]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [EXAMPLE, *options(place, "torchrun")]
    ended = warm_python.run(command, warm_python.TORCH, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr
    assert f"{STEPS} steps on 2 ranks" in ended.stdout + ended.stderr
    assert losses(place, "torchrun") == pytest.approx(alone, rel=0, abs=1e-6)
