"""A rank that reads a data set, tells the others what it read, and saves where all of them stand."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch  # noqa: TID251
import torch.distributed as group  # noqa: TID251
from torch.utils.data import DataLoader  # noqa: TID251

from streamplug import StreamingDataLoader, StreamingDataset

EPOCHS = 2


def loader_of(job: dict[str, Any]) -> DataLoader[Any]:
    dataset = StreamingDataset(
        remote=job["remote"],
        local=f"{job['cache']}/node-{os.environ['GROUP_RANK']}",
        shuffle=True,
        batch_size=job["batch"],
    )
    workers = job["workers"]
    kind = StreamingDataLoader if job["own_loader"] else DataLoader
    return kind(
        dataset,
        batch_size=job["batch"],
        num_workers=workers,
        multiprocessing_context=job["method"] if workers else None,
        persistent_workers=job["persistent"] and workers > 0,
    )


def everybodys(batch: torch.Tensor) -> list[int]:
    """Return the ids of a global batch, in order."""
    parts = [torch.empty_like(batch) for _ in range(group.get_world_size())]
    group.all_gather(parts, batch)
    return sorted(torch.cat(parts).tolist())


def save(path: Path, state: dict[str, Any], history: list[list[int]]) -> None:
    states: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(states, state)
    if any(other != state for other in states):
        raise RuntimeError(f"ranks stand at different places: {states}")
    if group.get_rank() == 0:
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"state": state, "history": history}))
        part.replace(path)


def main(job: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    group.init_process_group("gloo")
    loader, path = loader_of(job), Path(job["checkpoint"])
    history: list[list[int]] = []
    first = 0
    if path.exists():
        saved = json.loads(path.read_text())
        history, first = saved["history"], saved["state"]["epoch"]
        (loader if job["own_loader"] else loader.dataset).load_state_dict(saved["state"])
    for _ in range(first, EPOCHS):
        for number, batch in enumerate(loader, 1):
            history.append(everybodys(batch["id"]))
            if len(history) % job["every"] == 0:
                if job["own_loader"]:
                    state = loader.state_dict()
                else:  # as with any other loader, the program counts
                    used = number * job["batch"] * group.get_world_size()
                    state = loader.dataset.state_dict(used, from_beginning=False)
                save(path, state, history)
            if len(history) == job["stop"]:
                signal.pause()  # until it is killed
            time.sleep(job["pace"])
    if group.get_rank() == 0:
        Path(job["out"]).write_text(json.dumps(history))
    group.barrier()  # gloo's threads may not have let go yet of the tensors of the last step
    group.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
