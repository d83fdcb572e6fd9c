"""Groups of ranks for tests: programs that are started as torchrun does, watched, and killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from streamplug_testing.http import free_port
from streamplug_testing.processes import count_leaks

LEASH = 280
"""Seconds after which a rank ends by itself, whatever happens to the test."""

RANK_PROCESS = Path(__file__).with_name("rank_process.py")
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Rank:
    process: ForkServerProcess
    log: Path

    def session(self) -> set[int]:
        """Return the processes of the rank: itself and its loader workers."""
        return {pid for pid, session in sessions() if session == self.process.pid}


def sessions() -> Iterator[tuple[int, int]]:
    """Yield (process, session) of all that run, but not of those that only wait to be reaped."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if state not in "ZX":
                    yield int(entry.name), int(session)


class Group:
    """Ranks that were started together.

    Attributes:
        scratch: Where their temporary files go.
    """

    def __init__(
        self, start: Callable[..., Any], program: Path, arguments: Sequence[str],
        nodes: Sequence[int], folder: Path,
    ) -> None:  # fmt: skip
        """Start ranks on nodes of these sizes."""
        folder.mkdir()
        # Not in `folder`: the names of sockets have to be short.
        self.scratch = Path(tempfile.mkdtemp(prefix="ranks-"))
        self.ranks: list[Rank] = []
        self._seen: set[int] = set()
        self._killed_at = float("inf")
        places = [(node, local) for node, size in enumerate(nodes) for local in range(size)]
        common = {
            "WORLD_SIZE": len(places),
            "GROUP_WORLD_SIZE": len(nodes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port(),
            "GLOO_SOCKET_IFNAME": "lo",
            "TMPDIR": self.scratch,
            "TORCHINDUCTOR_CACHE_DIR": folder / "inductor",
        }
        for rank, (node, local) in enumerate(places):
            place = {"RANK": rank, "GROUP_RANK": node, "LOCAL_RANK": local}
            variables = {**common, **place, "LOCAL_WORLD_SIZE": nodes[node]}
            log = folder / f"rank-{rank}.log"
            task = {
                "program": str(program),
                "arguments": list(arguments),
                "variables": {name: str(value) for name, value in variables.items()},
                "log": str(log),
                "leash": LEASH,
            }
            # By its path: there a module of tests cannot be imported.
            process = start(target=runpy.run_path, args=(str(RANK_PROCESS), {"TASK": task}))
            process.start()
            self.ranks.append(Rank(process, log))

    def wait(self, timeout: float = 120) -> None:
        """Wait until all ranks have ended well; else kill them, and fail with what they said."""
        end = time.monotonic() + timeout
        while any(rank.process.exitcode is None for rank in self.ranks):
            if self.failed() or time.monotonic() > end:
                break
            time.sleep(0.05)
            self._look()
        codes = [rank.process.exitcode for rank in self.ranks]
        self.kill()
        assert codes == [0] * len(codes), f"exit codes {codes}\n{self.said()}"
        assert "Traceback" not in self.said()
        assert count_leaks(self.said()) == 0, self.said()
        assert self.left_behind() == set()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 120) -> None:
        """Wait until something is so while all ranks run."""
        end = time.monotonic() + timeout
        while not condition():
            assert not self.failed(), self.said()
            assert all(rank.process.exitcode is None for rank in self.ranks), "it ended too soon"
            assert time.monotonic() < end, f"waited for {timeout} s\n{self.said()}"
            time.sleep(0.02)
        self._look()

    def failed(self) -> bool:
        return any(rank.process.exitcode not in (None, 0) for rank in self.ranks)

    def said(self) -> str:
        return "\n".join(
            f"-- {rank.log.name}\n{rank.log.read_text()[-3000:]}"
            for rank in self.ranks
            if rank.log.exists()
        )

    def kill(self) -> None:
        """Kill all processes at once, as a machine that is taken away."""
        self._look()
        self._killed_at = min(self._killed_at, time.time())
        for rank in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.process.pid, signal.SIGKILL)
        for rank in self.ranks:
            rank.process.kill()  # it may not have got as far as a session of its own
            rank.process.join(20)
        end = time.monotonic() + 20
        while self.alive() and time.monotonic() < end:
            time.sleep(0.01)
        assert self.alive() == set()

    def alive(self) -> set[int]:
        ours = {rank.process.pid for rank in self.ranks}
        return {pid for pid, session in sessions() if pid in ours or session in ours}

    def _look(self) -> None:
        """Note which processes there are: torch names shared memory after them."""
        self._seen |= {pid for rank in self.ranks for pid in (rank.process.pid, *rank.session())}

    def left_behind(self) -> set[str]:
        """Return what is left of the group in shared memory and among temporary files.

        Killed processes cannot clean up. What is theirs by design does not count: directories of
        multiprocessing, which have sockets, and a block that torch was about to take the name from.
        """
        owners = {("torch", str(pid)) for pid in self._seen}
        left = set()
        for path in SHARED_MEMORY.glob("torch_*"):
            with contextlib.suppress(FileNotFoundError):
                age = self._killed_at - path.stat().st_mtime
                if (
                    tuple(path.name.split("_")[:2]) in owners and age > 2
                ):  # it may have waited long for a processor
                    left.add(path.name)
        killed = any(rank.process.exitcode for rank in self.ranks)
        return left | {
            path.name
            for path in self.scratch.iterdir()
            if not (killed and path.name.startswith("pymp-"))
        }


@pytest.fixture(scope="session")
def start_process() -> Callable[..., Any]:
    """Start processes from one that has torch already: importing it takes seconds each time."""
    context = multiprocessing.get_context("forkserver")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("COVERAGE", "COV_"))]:
            patch.delenv(name)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(name, "1")
        forkserver.ensure_running()
    return context.Process


@pytest.fixture
def start_group(start_process, tmp_path) -> Iterator[Callable[..., Group]]:
    """Start a group: `start_group(program, *arguments, nodes=(4, 2))`; killed when the test ends."""
    started: list[Group] = []

    def start(program: Path, *arguments: str, nodes: Sequence[int] = (1,)) -> Group:
        folder = tmp_path / f"group-{len(started)}"
        started.append(Group(start_process, program, arguments, nodes, folder))
        return started[-1]

    yield start
    for group in started:
        group.kill()
        shutil.rmtree(group.scratch)
