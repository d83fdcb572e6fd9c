"""Training with Ray Train: a worker is lost, and all of it is stopped."""

from __future__ import annotations

import os
import signal

import pytest

EXAMPLE = "train_ray.py"

pytestmark = pytest.mark.timeout(900)  # Ray starts a dozen processes, each run twice


def lost(run, log_of, out: str) -> None:
    """Kill the worker that has written down ten steps."""
    program = run.start(EXAMPLE, out, steps=200, every=4)
    try:
        run.until(program, out, lambda: len(log_of().losses) >= 10)
        os.kill(*log_of().processes, signal.SIGKILL)
    except BaseException:
        run.kill(program)
        raise
    run.wait(program, out=out)


def test_losses_after_a_worker_was_lost_are_the_same(run):
    out = "ray"
    log_of = type(run("train_ddp.py", "plain-long", ranks=1, steps=220)).of
    lost(run, lambda: log_of(run.place / out), out)
    assert len(log_of(run.place / out).processes) == 2
    log = run(EXAMPLE, out, steps=220, workers=1)  # another run, which begins where that one ended
    assert len(log.processes) == 3
    log.check(log_of(run.place / "plain-long"))
