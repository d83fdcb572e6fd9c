"""Training with JAX where there is no torch: kills, and several processes."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from streamplug_testing.http import free_port

EXAMPLE = "train_jax.py"


@pytest.fixture(scope="module")
def alone(run):
    return run(EXAMPLE, "jax")


def group(run, out, **options):
    """Run two processes together."""
    both = {"processes": 2, "coordinator": f"127.0.0.1:{free_port()}", **options}
    return run.wait(*(run.start(EXAMPLE, out, process=n, **both) for n in range(2)), out=out)


def test_there_is_no_torch():
    assert find_spec("torch") is None


def test_it_learns(alone):
    losses = [losses[0] for losses in alone.losses.values()]
    assert sum(losses[-5:]) < sum(losses[:5]) / 2


@pytest.mark.parametrize("stop", [10, 13], ids=["within an epoch", "at its end"])
def test_losses_after_a_stop_are_the_same_on_two_processes(run, alone, stop):
    run(EXAMPLE, f"jax-{stop}", steps=stop, every=1)
    group(run, f"jax-{stop}", steps=30, workers=2).check(alone)


def test_losses_after_two_processes_are_the_same_on_one(run, alone):
    group(run, "jax-two", steps=17, every=1)
    run(EXAMPLE, "jax-two").check(alone)


def test_losses_after_a_kill_are_the_same(run):
    last = run.killed(EXAMPLE, "jax-killed", after=10)
    log = run(EXAMPLE, "jax-killed", steps=last + 15)
    assert len(log.processes) == 2
    log.check(run(EXAMPLE, "jax-alone", steps=last + 15))
