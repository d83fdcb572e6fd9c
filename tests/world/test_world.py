"""A few simulated worlds; `tox -e world` runs many, and looks for planted defects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("greenlet")
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> list[str]:
    """Return the lines of some worlds."""
    command = [sys.executable, "-m", "tests.world.run", *arguments]
    # Without coverage, whose tracing has threads and files of its own.
    environment = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert result.stdout, result.stderr
    return result.stdout.splitlines()


def test_jobs_end_right_whatever_happens():
    for line in run(*map(str, range(1, 5))):
        assert ": ok; " in line


def test_a_seed_gives_the_same_world_each_time():
    first, again = ([line.rpartition(",")[0] for line in run("3", "5")] for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    "defect",
    ["the lock of the quota is not taken", "resuming skips a step", "downloads are not verified"],
)
def test_planted_defects_are_found(defect):
    assert any(": ok; " not in line for line in run("1", "2", "4", "5", "--defect", defect))
