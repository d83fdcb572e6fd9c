"""Training that goes on while a rank joins and another is killed; tests/faults has more of it."""

from __future__ import annotations

import os
import signal

import pytest

EXAMPLE = "train_resize.py"
STEPS = 4000
"""A rank that joins takes some seconds to start."""


def test_it_trains_as_ddp_does(run, plain):
    run(EXAMPLE, "resize", members=3, workers=1).check(plain)


@pytest.mark.parametrize("workers", [0, 2])
def test_losses_are_the_same_when_ranks_join_and_die(run, plain, workers):
    out = f"resize-{workers}"
    log_of = type(plain).of
    program = run.start(EXAMPLE, out, members=2, steps=STEPS, workers=workers)
    try:
        run.until(program, out, lambda: len(log_of(run.place / out).losses) >= 10)
        program.send_signal(signal.SIGUSR1)
        run.until(program, out, lambda: len(log_of(run.place / out).processes) == 3)
        os.kill(min(log_of(run.place / out).processes), signal.SIGKILL)
    except BaseException:
        run.kill(program)
        raise
    log = run.wait(program, out=out)
    assert (run.place / out / "changes.jsonl").read_text().count('"ranks": 2') == 2
    log.check(run("train_ddp.py", "resize-alone", ranks=1, steps=STEPS))
