"""Memory stays flat from epoch to epoch, and nothing is left of a trainer, or a worker, that was killed.

With STREAMPLUG_TEST_SOAK in the environment a hundred epochs are read, else some.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from streamplug import MDSWriter
from tests import warm_python
from tests.warm_python import TORCH, Program

pytest.importorskip("torch")

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
EPOCHS, WARM = (100, 10) if SOAK else (16, 6)
SIZE, BATCH, WIDE = 240, 8, 4096

COMMON = """
import gc, json, multiprocessing, os, sys, time
from pathlib import Path
import torch
from streamplug import StreamingDataLoader, StreamingDataset
from streamplug.transfer import decode_pool

decode_pool.SLOW_BLOCKS = 0  # even for what takes no time
torch.set_num_threads(1)
folder, batch = sys.argv[1], int(sys.argv[2])

def made(**kwargs):
    return StreamingDataset(local=folder, shuffle=True, batch_size=batch, **kwargs)

def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

def children():
    return [int(p) for p in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]

def held():
    with open("/proc/self/maps") as maps:
        lines = len(maps.readlines())
    return {"descriptors": len(os.listdir("/proc/self/fd")), "maps": lines}
"""

EPOCHS_PROGRAM = (
    COMMON
    + """
epochs, kind, kept = int(sys.argv[3]), sys.argv[4], sys.argv[5] == "kept"
two = {"num_workers": 2}
loops = {
    "samples": lambda: iter(made()),
    "batches": lambda: made().batches(),
    "threads": lambda: made().batches(num_threads=2),
    "loader": lambda: StreamingDataLoader(made()),
    "workers": lambda: StreamingDataLoader(made(), **two),
    "persistent": lambda: StreamingDataLoader(made(), persistent_workers=True, **two),
    "worker threads": lambda: StreamingDataLoader(
        made(), persistent_workers=True, num_threads=2, num_workers=4
    ),
    "worker samples": lambda: StreamingDataLoader(
        made(), persistent_workers=True, transform=lambda each: each, **two
    ),
}
again = None if kind in ("samples", "batches", "threads") else loops[kind]()
found = []
for epoch in range(epochs):
    last = []
    for each in again if again is not None else loops[kind]():
        if kept:
            last = last[-20:] + [each]
    del each
    last.clear()
    gc.collect()
    found.append({"memory": sum(map(resident, [os.getpid(), *children()])), **held()})
print(json.dumps(found))
"""
)

KILLED_PROGRAM = (
    COMMON
    + """
loader = StreamingDataLoader(
    made(), num_workers=2, persistent_workers=True, multiprocessing_context=sys.argv[3]
)
for number, each in enumerate(loader):
    if number == 3:  # workers of a fork server are not its children
        workers = [worker.pid for worker in multiprocessing.active_children()]
        print(json.dumps([*children(), *workers]), flush=True)
        time.sleep(600)
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"id": "int", "wide": f"ndarray:int16:{WIDE}", "text": "str"}
    with MDSWriter(columns=columns, out=out, size_limit=100_000) as writer:
        for number in range(SIZE):
            wide = np.full(WIDE, number, np.int16)
            writer.write({"id": number, "wide": wide, "text": f"text {number}" * (number % 9)})
    return str(out)


def arguments(program: str, folder: str, *more: object) -> list[str]:
    return ["-W", "ignore", "-c", program, folder, str(BATCH), *map(str, more)]


WAYS = [
    *("samples", "batches", "threads", "loader"),
    *("workers", "persistent", "worker threads", "worker samples"),
]


EACH = list(product(WAYS, ["kept", "dropped"]))
FEW = [("threads", "kept"), ("persistent", "kept")]


@pytest.mark.parametrize(("kind", "kept"), EACH if SOAK else FEW)
def test_memory_is_flat(folder, kind, kept):
    done = warm_python.run(arguments(EPOCHS_PROGRAM, folder, EPOCHS, kind, kept), TORCH)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    base = max(each["memory"] for each in found[:WARM])
    assert max(each["memory"] for each in found[WARM:]) <= 1.05 * base, found
    assert found[-1]["descriptors"] <= found[WARM - 1]["descriptors"] + 1, found
    assert found[-1]["maps"] <= found[WARM - 1]["maps"] + 40, found


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # ended, and nobody asks: where the tests run may be no init


def shared() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


@pytest.mark.parametrize(
    "method", ["fork", "forkserver", "spawn"] if SOAK else ["fork", "forkserver"]
)
def test_workers_end_when_their_trainer_is_killed(folder, method):
    before = shared()
    with Program(arguments(KILLED_PROGRAM, folder, method), TORCH) as trainer:
        workers = json.loads(trainer.stdout.readline())
        assert len(workers) >= 2
        pids = {str(pid) for pid in (trainer.pid, *workers)}
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
    end = time.monotonic() + 60
    while not all(map(gone, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert [pid for pid in workers if not gone(pid)] == []
    # Torch names blocks torch_PID_NUMBER_COUNT.
    assert not [name for name in shared() - before if pids.intersection(name.split("_"))]
