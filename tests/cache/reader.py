"""A process that reads a data set through a cache; `TASK` says which and how.

Kept free of torch, so that it starts quickly.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from importlib import import_module
from pathlib import Path

from streamplug.dataset import StreamingDataset
from streamplug.run import feed
from streamplug.transfer.prefetch import PrefetchLimits
from streamplug.types import World

TASK = globals()["TASK"]


def die_at(place: str, call: int, when: str) -> None:
    """Kill this process, as the kernel would, before or after a call of a function."""
    module, _, path = place.partition(":")
    owner = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)
    calls = [0]

    def dying(*args, **kwargs):
        calls[0] += 1
        mine = calls[0]  # other threads may call meanwhile
        if mine == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if mine == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


feed.PrefetchLimits = partial(PrefetchLimits, max_running=TASK.get("active", 1))
if "die" in TASK:
    die_at(*TASK["die"])
dataset = TASK.get("dataset") or StreamingDataset(
    remote=TASK["remote"],
    local=TASK["local"],
    cache_limit=TASK.get("limit"),
    keep_zip=TASK.get("keep_zip", False),
    predownload=TASK.get("predownload", 1),
    shuffle=TASK.get("shuffle", True),
    shuffle_block_size=TASK.get("block", 64),
    shuffle_seed=TASK.get("seed", 1),
    batch_size=TASK.get("batch", 4),
    world=TASK.get("world") or World(ranks_per_node=TASK.get("ranks", 1), rank=TASK.get("rank", 0)),
)
seen = []
for _ in range(TASK.get("epochs", 1)):
    for sample in dataset:
        if sample["data"] != sample["id"].to_bytes(4, "little") * 250:
            raise ValueError(f"sample {sample['id']} is damaged")
        seen.append(sample["id"])
if "out" in TASK:
    Path(TASK["out"]).write_text(" ".join(map(str, seen)))
