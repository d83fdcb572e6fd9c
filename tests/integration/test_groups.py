"""Groups of ranks that are killed in mid-epoch and continue as other groups, on real processes.

With STREAMPLUG_TEST_SOAK in the environment all combinations run, else a few that cover each value.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("torch")

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset

MEMBER = Path(__file__).with_name("group_member.py")
SIZE = 491
GLOBAL_BATCH = 24
STEPS = 21  # of an epoch
EVERY = 3  # steps between two checkpoints


@dataclass(frozen=True)
class Hardware:
    """What a group runs on.

    Attributes:
        nodes: Ranks of each node.
        workers: Loader workers of each rank.
        method: How workers are started.
        own_loader: Whether StreamingDataLoader loads, or torch's DataLoader.
        persistent: Whether workers live for more than an epoch.
    """

    nodes: tuple[int, ...]
    workers: int
    method: str = "fork"
    own_loader: bool = True
    persistent: bool = False

    def __str__(self) -> str:
        loader = "" if self.own_loader else "-plain"
        method = "-spawn" if self.method == "spawn" else ""
        kept = "-kept" if self.persistent else ""
        return "+".join(map(str, self.nodes)) + f"x{self.workers}{method}{loader}{kept}"


FEW = [
    (Hardware((4,), 3, persistent=True), Hardware((1,), 2)),
    (Hardware((4, 4), 0), Hardware((2,), 3, own_loader=False)),
    (Hardware((1, 1), 2, own_loader=False), Hardware((8,), 2, persistent=True)),
    (Hardware((1,), 2, "spawn", persistent=True), Hardware((4, 2), 0)),
]
LAYOUTS = {
    1: [(1,)],
    2: [(2,), (1, 1)],
    4: [(4,), (2, 2), (3, 1), (1, 1, 2)],
    8: [(8,), (4, 4), (2, 2, 2, 2), (5, 3), (4, 3, 1)],
}


def all_of_them() -> list[tuple[Hardware, Hardware]]:
    """Return every number of ranks and workers to every other, and the rest by lot."""
    lot = random.Random(7)

    def hardware(ranks: int, workers: int) -> Hardware:
        spawn = workers and ranks <= 2 and lot.random() < 0.4  # each takes seconds to start
        return Hardware(
            lot.choice(LAYOUTS[ranks]),
            workers,
            "spawn" if spawn else "fork",
            own_loader=lot.random() < 0.6,
            persistent=workers > 0 and lot.random() < 0.5,
        )

    sizes = list(product((1, 2, 4, 8), (0, 2, 3)))
    return [(hardware(*before), hardware(*after)) for before, after in product(sizes, sizes)]


PAIRS = all_of_them() if os.environ.get("STREAMPLUG_TEST_SOAK") else FEW


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"id": "int", "text": "str"}, out=out, size_limit=900) as writer:
        for number in range(SIZE):
            writer.write({"id": number, "text": str(number)})
    return str(out)


def job(folder: str, place: Path, hardware: Hardware, **more: object) -> str:
    settings = {
        **asdict(hardware),
        "remote": folder,
        "cache": str(place / "cache"),
        "checkpoint": str(place / "checkpoint.json"),
        "out": str(place / "history.json"),
        "batch": GLOBAL_BATCH // sum(hardware.nodes),
        "every": EVERY,
        "pace": 0.0,
        "stop": None,
    }
    return json.dumps({**settings, **more})


def alone(folder: str, canonical_nodes: int) -> list[list[int]]:
    """Return the global batches of two epochs that one process reads, never interrupted."""
    dataset = StreamingDataset(
        local=folder, shuffle=True, batch_size=GLOBAL_BATCH, num_canonical_nodes=canonical_nodes
    )
    return [sorted(batch["id"].tolist()) for _ in range(2) for batch in dataset.batches()]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_a_group_that_is_killed_continues_as_another(folder, start_group, tmp_path, before, after):
    lot = random.Random(f"{before} {after}")
    checkpoint, history = tmp_path / "checkpoint.json", tmp_path / "history.json"
    doomed = job(folder, tmp_path, before, pace=0.01, stop=2 * STEPS - 2)
    group = start_group(MEMBER, doomed, nodes=before.nodes)
    target = lot.randrange(EVERY, 2 * STEPS - 2 * EVERY)

    def is_far_enough() -> bool:
        return checkpoint.exists() and len(json.loads(checkpoint.read_text())["history"]) >= target

    group.wait_for(is_far_enough)
    time.sleep(lot.uniform(0, 0.15))
    group.kill()
    assert group.left_behind() == set()
    saved = json.loads(checkpoint.read_text())
    assert not history.exists()

    start_group(MEMBER, job(folder, tmp_path, after), nodes=after.nodes).wait()
    found = json.loads(history.read_text())
    canonical_nodes = saved["state"]["num_canonical_nodes"]
    assert found == alone(folder, canonical_nodes)
    assert found[: len(saved["history"])] == saved["history"]
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".tmp"]
