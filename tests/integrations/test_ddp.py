"""Training by torchrun with DistributedDataParallel: other numbers of processes, and kills."""

from __future__ import annotations

import pytest


def test_it_learns(plain):
    losses = [losses[0] for losses in plain.losses.values()]
    assert sum(losses[-5:]) < sum(losses[:5]) / 2


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1)])
def test_losses_after_a_kill_are_the_same_on_any_number_of_processes(run, before, after):
    out = f"killed-{before}-{after}"
    last = run.killed("train_ddp.py", out, after=10, ranks=before, workers=1)
    log = run("train_ddp.py", out, ranks=after, steps=last + 15)
    assert len(log.processes) == 2
    log.check(run("train_ddp.py", f"{out}-alone", ranks=1, steps=last + 15))


@pytest.mark.parametrize("stop", [10, 13], ids=["within an epoch", "at its end"])
def test_losses_after_a_stop_are_the_same(run, plain, stop):
    out = f"stopped-{stop}"
    run("train_ddp.py", out, ranks=2, steps=stop, every=1)
    run("train_ddp.py", out, ranks=1, workers=2).check(plain)
