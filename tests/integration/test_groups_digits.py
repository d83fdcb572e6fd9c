"""A network that is trained on any number of ranks, and across a kill, has the same losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "digits.py"
EPOCHS = 3
STEPS = 29 * EPOCHS
SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))


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
    program = subprocess.Popen(
        [sys.executable, *command, str(EXAMPLE), *options(place, "torchrun")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        output, _ = program.communicate(timeout=120)
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGTERM)  # it ends its ranks
            program.communicate(timeout=60)
    assert program.returncode == 0, output
    assert f"{STEPS} steps on 2 ranks" in output
    assert losses(place, "torchrun") == pytest.approx(alone, rel=0, abs=1e-6)
