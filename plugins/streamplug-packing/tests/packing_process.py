"""A process that packs a data set, as a rank of a group or alone, until it is done or killed.

A job has `folder`, `out`, `workers`, `packs_per_epoch`, `loops`. Each line of `out` has the packs' digest and
the state after it; a process that finds lines continues there.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID251
from streamplug_packing import PackingDataLoader

from streamplug import StreamingDataset, World


def transform(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a sample of a length that its stored form does not tell."""
    number = sample["n"]
    length = int(np.random.default_rng(number).lognormal(2.5, 1)) % 60 + 1
    return {
        "tokens": torch.arange(length, dtype=torch.int32) + number,
        "bf16": torch.full((1,), number, dtype=torch.bfloat16),
        "patches": np.full((number % 3, 2), number, np.float32),
        "n": number,
        "text": str(number),
    }


def make_loader(folder: str, **kwargs: Any) -> PackingDataLoader:
    world = kwargs.pop("world", World())
    dataset = StreamingDataset(
        local=folder,
        shuffle=True,
        batch_size=8 // world.ranks,
        num_canonical_nodes=2,
        world=world,
        replication=kwargs.pop("replication", None),
    )
    options = {"length": 64, "size": "tokens", "open_bins": 4, "transform": transform}
    return PackingDataLoader(dataset, **{**options, **kwargs})


def digest(pack: dict[str, Any]) -> str:
    """Return a digest of all values and types of a pack."""
    parts = [
        f"{name} {value.dtype} {value.shape} {value.tolist()}"
        if isinstance(value, torch.Tensor)
        else f"{name} {value}"
        for name, value in pack.items()
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def packs_after(folder: str, state: Any, limit: int, **kwargs: Any) -> list[str]:
    """Return the digests of the packs after a state."""
    loader, found = make_loader(folder, **kwargs), []
    loader.load_state_dict(state)
    while len(found) < limit:
        for pack in loader:
            found.append(digest(pack))
            if len(found) == limit:
                break
    return found


def main(job: dict[str, Any]) -> None:
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    loader = make_loader(
        job["folder"],
        world=World(ranks_per_node=ranks, rank=rank),
        num_workers=job["workers"],
        packs_per_epoch=job["packs_per_epoch"],
    )
    out = Path(job["out"].format(rank=rank))
    lines = out.read_bytes().split(b"\n")[:-1] if out.exists() else []  # the last may be cut
    if lines:
        loader.load_state_dict(json.loads(lines[-1])["state"])
    out.write_bytes(b"".join(line + b"\n" for line in lines))
    with out.open("ab", buffering=0) as file:
        for _ in range(job["loops"]):
            for pack in loader:
                if ranks > 1:  # a rank that yielded fewer packs than the others would wait forever
                    torch.distributed.all_reduce(torch.ones(1))
                row = {"digest": digest(pack), "ids": pack["sample_ids"]}
                file.write(json.dumps({**row, "state": loader.state_dict()}).encode() + b"\n")
    if ranks > 1:
        torch.distributed.destroy_process_group()
