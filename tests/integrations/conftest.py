"""Runs the examples of trainers: whole, in two goes, or killed.

`tox -c tests -e integrations` and `tox -c tests -e jax` have what they need.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TIMEOUT = 280
STEPS = 30
"""Of a run: an epoch has 13."""

NEEDS = {
    "test_accelerate.py": "accelerate",
    "test_budget.py": "torch",
    "test_composer.py": "composer",
    "test_conversations.py": "transformers",
    "test_datasets.py": "datasets",
    "test_ddp.py": "torch",
    "test_divided_dataset.py": "transformers",
    "test_grain.py": "grain",
    "test_jax.py": "jax",
    "test_lightning.py": "lightning",
    "test_lightning_options.py": "lightning",
    "test_ray.py": "ray",
    "test_resize.py": "torch",
    "test_torchdata.py": "torchdata",
    "test_torchtitan.py": "torchtitan",
    "test_torchft.py": "torchft",
    "test_transformers.py": "transformers",
    "test_transformers_budget.py": "transformers",
}
sys.path.append(str(EXAMPLES))  # a test imports an example
collect_ignore = [name for name, package in NEEDS.items() if find_spec(package) is None]


@dataclass
class Log:
    """What runs of an example wrote down.

    Attributes:
        losses: By step; a step that was taken again after a kill has several.
        samples: Which samples a step had, likewise.
        processes: Who wrote.
    """

    losses: dict[int, list[float]] = field(default_factory=dict)
    samples: dict[int, list[list[int]]] = field(default_factory=dict)
    processes: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, out: Path) -> Log:
        log, path = cls(), out / "losses.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.endswith("}"):  # else it is being written
                said = json.loads(line)
                log.losses.setdefault(said["step"], []).append(said["loss"])
                log.samples.setdefault(said["step"], []).append(said["samples"])
                log.processes.add(said["process"])
        return log

    def check(self, other: Log, tolerance: float = 1e-6) -> None:
        """Check that each step, however often it was taken, was that of another run."""
        assert sorted(self.losses) == sorted(other.losses) == [*range(1, len(other.losses) + 1)]
        for step, losses in self.losses.items():
            alone = other.losses[step][:1] * len(losses)
            assert losses == pytest.approx(alone, rel=0, abs=tolerance)
            assert self.samples[step] == other.samples[step][:1] * len(losses)


@dataclass
class Runner:
    """Runs examples on one data set.

    Attributes:
        place: Folder for all of it.
    """

    place: Path
    before: Sequence[str] = ()

    def start(self, example: str, out: str, *, ranks: int = 0, **options: Any) -> Any:
        """Start an example, by torchrun if it is to have `ranks`."""
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        settings = {"data": self.place / "waves", "out": self.place / out, **options}
        command = [
            sys.executable,
            *(launch if ranks else ()),
            *map(str, self.before),
            str(EXAMPLES / example),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        quiet = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "GLOO_SOCKET_IFNAME": "lo"}
        with (self.place / f"{out}.txt").open("a") as said:
            return subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **quiet},
                start_new_session=True,
            )

    def wait(self, *programs: Any, out: str) -> Log:
        """Wait until programs have ended well, and return what they wrote down."""
        try:
            codes = [program.wait(TIMEOUT) for program in programs]
        finally:
            self.kill(*programs)
        assert codes == [0] * len(codes), (self.place / f"{out}.txt").read_text()[-6000:]
        return Log.of(self.place / out)

    def __call__(self, example: str, out: str, **options: Any) -> Log:
        return self.wait(self.start(example, out, **{"steps": STEPS, **options}), out=out)

    def killed(self, example: str, out: str, *, after: int, **options: Any) -> int:
        """Run an example that has no end, kill it after some steps, and return the last of them."""
        program = self.start(example, out, steps=10**9, **options)
        try:
            self.until(program, out, lambda: len(Log.of(self.place / out).losses) >= after)
        finally:
            self.kill(program)
        return max(Log.of(self.place / out).losses)

    def until(self, program: Any, out: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT
        while not holds():
            assert program.poll() is None, (self.place / f"{out}.txt").read_text()[-6000:]
            assert time.monotonic() < end
            time.sleep(0.02)

    def kill(self, *programs: Any) -> None:
        """Kill programs with all that they have started."""
        for program in programs:
            if program.poll() is None:
                for pid in family(program.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                program.wait(20)


def family(pid: int) -> list[int]:
    """Return a process and all that come from it, stopped, so that none of them starts another."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(stat.parent.name))
    return [pid, *(each for child in children for each in family(child))]


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Runner:
    return Runner(tmp_path_factory.mktemp("waves"))


@pytest.fixture(scope="session")
def plain(run) -> Log:
    """A run of one process that has nothing but torch, which all trainers can be compared with."""
    return run("train_ddp.py", "plain", ranks=1)
