"""Training with torchft: a rank joins, and the first one is killed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from streamplug_testing.http import free_port

EXAMPLE = "train_torchft.py"


@pytest.fixture
def lighthouse(tmp_path):
    """The address of a process that says who is there."""
    address = f"127.0.0.1:{free_port()}"
    options = ["--bind", address, "--min_replicas", "1", "--join_timeout_ms", "1000"]
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(["torchft_lighthouse", *options], stdout=said, stderr=said)
    yield f"http://{address}"
    process.kill()
    process.wait(20)


@pytest.mark.parametrize("workers", [0, 2])
def test_losses_are_the_same_when_ranks_join_and_die(run, plain, lighthouse, workers):
    slow = replace(run, before=[Path(__file__).with_name("slow_steps.py")])
    out, members = f"torchft-{workers}", []

    def start():
        members.append(
            slow.start(
                EXAMPLE,
                out,
                member=len(members),
                steps=10**9,
                workers=workers,
                lighthouse=lighthouse,
            )
        )

    def log():
        return type(plain).of(run.place / out)

    try:
        start()
        run.until(members[0], out, lambda: len(log().losses) >= 10)
        start()
        run.until(members[1], out, lambda: len(log().processes) == 2)
        joined = max(log().losses)
        run.until(members[1], out, lambda: len(log().losses) >= joined + 20)
        run.kill(members[0])
        killed = max(log().losses)
        run.until(members[1], out, lambda: len(log().losses) >= killed + 20)
    finally:
        run.kill(*members)
    found = log()
    assert [len(found.losses[step]) for step in (5, joined + 10, killed + 10)] == [1, 2, 1]
    found.check(run("train_ddp.py", f"{out}-alone", ranks=1, steps=max(found.losses)))
