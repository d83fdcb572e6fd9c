"""A training job in the simulated world: a bucket, machines with a shared cache each, ranks, and faults.

Import it after `kernel.install`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamplug.cache import quota, staging
from streamplug.dataset import StreamingDataset
from streamplug.errors import NotFound, Transient
from streamplug.interfaces import Storage
from streamplug.interfaces.callback import Callback, Event, RequestRetried
from streamplug.plugin import register
from streamplug.plugin_kit import cancellation
from streamplug.read import open_shards
from streamplug.transfer import locks, pool, probe, retry, stall_timeout
from streamplug.types import ObjectInfo, World
from tests.world import kernel as world
from tests.world.data import content, order
from tests.world.kernel import START, Failure, Kernel, Machine, Process

logging.getLogger("streamplug").setLevel(logging.CRITICAL)

TIMEOUT, STEP_SECONDS = 5.0, 0.5
STATE: list[tuple[Any, str, Callable[[], Any]]] = [
    (quota, "_mutexes", type(quota._mutexes)),
    (quota, "_warned", set),
    (locks, "_warned", set),
    (locks, "_open", dict),
    (locks, "_stalled", dict),
    (pool, "_idle", list),
    (open_shards, "_all", type(open_shards._all)),
    (probe, "_stalled", dict),
]
"""What is global in a process."""


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong; a time of 0 is never.

    Attributes:
        request: Share of requests that fail, stall or are damaged.
        kill: Mean seconds between restarts of the job, after which it has another world.
        freeze: Mean seconds between suspensions of a process.
        crash: Mean seconds between losses of power of a machine.
        full: Mean seconds between times when the disk of a machine is full.
    """

    request: float
    kill: float
    freeze: float
    crash: float
    full: float

    @classmethod
    def drawn(cls, draw: random.Random) -> Faults:
        """Return some faults: worlds in which one kind is missing find what that kind would hide."""
        seconds = {"kill": 8.0, "freeze": 8.0, "crash": 20.0, "full": 4.0}
        some = {kind: mean * (draw.random() < 0.6) for kind, mean in seconds.items()}
        return cls(draw.choice([0.0, 0.05, 0.2]), **some)


class Network(Storage):
    """A bucket behind a network that fails now and then."""

    job: Job

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)

    def _ask(self, key: str) -> tuple[bytes, str]:
        """Wait for an answer; return the data and what is wrong with it."""
        kernel = self.job.kernel
        kernel.wait(None, kernel.draw.expovariate(20.0))
        self.job.requests[key] += 1
        if key not in self.job.files:
            raise NotFound(f"{self.url_of(key)} does not exist")
        fault = ""
        if kernel.draw.random() < self.job.faults.request:
            # The index is asked for briefly where there is a copy, so no more is done to it.
            more = ["stall", "short", "flipped"] if key.startswith("shard") else []
            fault = kernel.draw.choice(["busy", "reset", *more])
        if fault == "busy":
            raise Transient(f"{self.url_of(key)}: busy")
        if fault == "stall":
            self.job.stalled.add(self.url_of(key))
            kernel.wait(None, kernel.draw.choice([TIMEOUT / 2, 2000 * TIMEOUT]))
        return self.job.files[key], fault

    def read(self, key: str) -> bytes:
        data, fault = self._ask(key)
        if fault == "reset":
            raise Transient(f"{self.url_of(key)}: reset")
        return data[: len(data) // 2] if fault == "short" else data

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self.read(key)[start:stop]

    def download(self, key: str, path: Path) -> None:
        data, fault = self._ask(key)
        kernel = self.job.kernel
        if fault == "short":
            data = data[:-7]
        if fault == "flipped":
            data = data[:-1] + bytes([data[-1] ^ 1])
        process, scope = world._process(), cancellation.current()
        assert process is not None
        if scope is not None and not scope.stopped:
            self.job.note_download(process, key)
        with path.open("wb") as file:
            for start in range(0, len(data), 1500):
                if self.job.is_full(process.machine):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                file.write(data[start : start + 1500])
                file.flush()
                kernel.wait(None, kernel.draw.expovariate(100.0))
                if fault == "reset":
                    raise Transient(f"{self.url_of(key)}: reset")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from (self.stat(key) for key in self.job.files if key.startswith(prefix))

    def stat(self, key: str) -> ObjectInfo:
        data, _ = self._ask(key)
        return ObjectInfo(key, len(data))

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError

    write = upload = delete = _refuse


register("storage", "world", Network)


class Retries(Callback):
    """Notes requests that were taken for stalled ones."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def on_event(self, event: Event, _: World) -> None:
        if isinstance(event, RequestRetried) and "nothing arrived" in event.cause:
            self.job.timed_out.add(event.url)


class Job:
    """A job that is killed and started again, on another world, until its steps are done.

    Attributes:
        kernel: What runs it.
        requests: Requests of the network by file.
        stalled: URLs of files of which an answer stalled.
        timed_out: URLs of files of which a request was given up because nothing arrived.
    """

    def __init__(self, seed: int, folder: Path, far: Path) -> None:
        self.files = {path.name: path.read_bytes() for path in far.iterdir()}
        self.wanted = json.loads(self.files.pop("steps.json"))
        self.kernel = Kernel(seed, STATE)
        self.draw = self.kernel.draw
        self.faults, self.requests = Faults.drawn(self.draw), Counter[str]()
        self.stalled: set[str] = set()
        self.timed_out: set[str] = set()
        self.soon: list[tuple[int, Callable[[], None]]] = []
        self.stopped: Process | None = None
        self.began: dict[tuple[Machine, str], float] = {}
        self.downloads: dict[tuple[Machine, str], Process] = {}
        self.machines = [Machine(folder / f"machine{number}") for number in range(2)]
        sizes = [len(data) for name, data in self.files.items() if name.startswith("shard")]
        self.limit = self.draw.choice([None, round(0.7 * sum(sizes))])
        self.steps: list[list[int]] = []  # committed, ids of each
        self.state: dict[str, Any] | None = None
        self.full_until = dict.fromkeys(self.machines, 0.0)
        self.ranks: list[Process] = []
        # As documented: files whose names a loss of power took from the list are not counted, and nothing is
        # evicted while a process that is stopped holds the lock of the quota.
        self.uncounted: set[Machine] = set()
        Network.job = self
        _draw_from(self.draw)

    def note_download(self, process: Process, key: str) -> None:
        """Check that no other process of the machine has just downloaded a file too, for want of a lock."""
        other = self.downloads.get((process.machine, key))
        if other not in (None, process) and other in self.ranks and process in self.ranks:
            since = self.kernel.now - self.began.get((process.machine, key), 0.0)
            if since < 0.005 and not self._was_frozen():
                raise Failure(f"{key} is downloaded by two processes of a machine at once")
        self.downloads[process.machine, key] = process
        self.began[process.machine, key] = self.kernel.now

    def is_full(self, machine: Machine) -> bool:
        return self.full_until[machine] > self.kernel.now

    def run(self, limit: float = 2000.0) -> None:
        """Run the job to its end.

        Raises:
            Failure: If an invariant does not hold.
        """
        self._schedule()
        self._begin()
        self.kernel.run(lambda: len(self.steps) >= len(self.wanted), self._check, START + limit)
        for process in {task.process for task in self.kernel.tasks}:
            self.kernel.kill(process)
        for number, (found, wanted) in enumerate(zip(self.steps, self.wanted)):
            if sorted(found) != wanted:
                raise Failure(f"step {number} has the samples {sorted(found)}, expected {wanted}")
        for machine in self.machines:
            self._check_left_over(machine)

    # -- what happens ------------------------------------------------------------------

    def _schedule(self) -> None:
        for seconds, act in (
            (self.faults.kill, lambda: self._soon(self._restart)),
            (self.faults.freeze, lambda: self._soon(self._freeze)),
            (self.faults.crash, lambda: self._soon(self._crash)),
            (self.faults.full, self._fill),
        ):
            if seconds:
                self._plan(seconds, act)

    def _plan(self, seconds: float, act: Callable[[], None]) -> None:
        def event() -> None:
            act()
            self._plan(seconds, act)

        self.kernel.at(self.kernel.now + self.draw.expovariate(1 / seconds), event)

    def _soon(self, act: Callable[[], None]) -> None:
        """Do something after some switches: in the midst of work, as most time passes between steps."""
        self.soon.append((self.kernel.steps + self.draw.randrange(400), act))

    def _restart(self) -> None:
        if self.stopped is not None:  # a new job needs half a minute to pass over its locks
            return
        if self.draw.random() < 0.3:
            self.stopped = self.draw.choice(self.ranks)
        for process in self.ranks:
            if process is self.stopped:  # it is never heard of again, but has what it has
                process.frozen_until = float("inf")
                self.uncounted.add(process.machine)
            else:
                self.kernel.kill(process)
        self._begin()

    def _crash(self) -> None:
        if self.stopped is not None:
            return
        machine = self.draw.choice(self.machines)
        for process in self.ranks:
            self.kernel.kill(process)
        machine.crash(self.draw)
        self.uncounted.add(machine)
        self._begin()

    def _freeze(self) -> None:
        process = self.draw.choice(self.ranks)
        if process.frozen_until < self.kernel.now - 5:
            process.frozen_until = self.kernel.now + self.draw.choice([1.0, 20.0])

    def _fill(self) -> None:
        if self.limit is None:  # that is an error, as promised
            return
        machine = self.draw.choice(self.machines)
        self.full_until[machine] = self.kernel.now + 0.02

    # -- ranks -------------------------------------------------------------------------

    def _begin(self) -> None:
        nodes = self.draw.choice([1, 2])
        ranks = nodes * self.draw.choice([1, 2, 3])
        self.parts: list[dict[int, list[int]]] = [{} for _ in range(ranks)]
        state, first, parts = self.state, len(self.steps), self.parts
        self.ranks = [
            self.kernel.start(
                self.machines[rank * nodes // ranks],
                lambda rank=rank: self._train(rank, ranks, nodes, state, first, parts),
            )
            for rank in range(ranks)
        ]

    def _train(
        self,
        rank: int,
        ranks: int,
        nodes: int,
        state: dict[str, Any] | None,
        step: int,
        parts: list[dict[int, list[int]]],
    ) -> None:
        machine = self.machines[rank * nodes // ranks]
        dataset = StreamingDataset(
            remote="world://bucket/set",
            local=str(machine.root / "cache"),
            cache_limit=self.limit,
            predownload=12,
            download_timeout=TIMEOUT,
            download_retry=12,
            callbacks=[Retries(self)],
            **order(ranks, rank, nodes),
        )
        if state is not None:
            dataset.load_state_dict(state)
        while step < len(self.wanted):
            for batch in dataset.batches():
                ids = batch["id"].tolist()
                for number, data in zip(ids, batch["data"]):
                    if bytes(data) != content(number):
                        raise Failure(f"rank {rank}, step {step}: sample {number} is wrong")
                self.kernel.wait(None, self.draw.expovariate(1 / STEP_SECONDS))
                parts[rank][step] = ids
                # As a step of training: nobody goes on before all have come.
                here = step
                self.kernel.wait(lambda here=here: all(here in part for part in parts), None)
                if rank == 0:
                    self.state = dataset.state_dict()
                    self.steps.append([number for part in parts for number in part[here]])
                self.kernel.wait(lambda here=here: len(self.steps) > here, None)
                step += 1

    # -- invariants --------------------------------------------------------------------

    def _check(self) -> None:
        for when, act in [each for each in self.soon if each[0] <= self.kernel.steps]:
            self.soon.remove((when, act))
            act()
        if self.timed_out - self.stalled and not self.faults.freeze and self.stopped is None:
            raise Failure(f"taken for stalled: {self.timed_out - self.stalled}")
        if self.limit is None or self.kernel.steps % 10:
            return
        for machine in self.machines:
            used = sum(_size(path) for path in (machine.root / "cache").glob("shard*"))
            if used > self.limit and not self._was_frozen() and machine not in self.uncounted:
                raise Failure(f"{used} bytes in a cache of {self.limit}")

    def _was_frozen(self) -> bool:
        return any(p.frozen_until > self.kernel.now - 40 for p in self.ranks)

    def _check_left_over(self, machine: Machine) -> None:
        """Check what a process that starts now finds, and leaves."""
        cache = machine.root / "cache"
        if not cache.exists():
            return
        room = quota.CacheQuota(cache, self.limit)
        room.remove_stale()
        left = list((locks.state_directory(cache) / locks.STAGING_DIR).glob("*"))
        if left:
            raise Failure(f"left behind: {left}")
        if machine in self.uncounted:
            return
        known = {cache / name for name in room._read_list()}
        if unknown := [path for path in cache.glob("shard*") if path not in known]:
            raise Failure(f"never evicted, as they are not listed: {unknown}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _draw_from(draw: random.Random) -> None:
    """Take chance from the seed, and what identifies a boot from the machine."""

    def token(size: int = 8) -> str:
        return draw.randbytes(size).hex()

    staging.token_hex = stall_timeout.token_hex = token
    retry.random = draw  # type: ignore[assignment]

    def boot_id() -> str:
        process = world._process()
        return "outside" if process is None else process.machine.boot

    quota.boot_id = boot_id  # type: ignore[assignment]
    np.random.seed(draw.randrange(1 << 30))
