"""Trains on any number of processes with DistributedDataParallel, and continues where it stood.

    torchrun --nproc-per-node 2 docs/examples/train_ddp.py --out run

Kill it whenever you like. Started again, on any number of processes, it goes on after the last checkpoint.
"""

from __future__ import annotations

import argparse
from itertools import chain
from typing import Any

import torch
import torch.distributed as group
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from waves import GLOBAL_BATCH, arguments, note, write_waves

from streamplug import StreamingDataLoader, StreamingDataset


def train(options: argparse.Namespace) -> None:
    rank, ranks = group.get_rank(), group.get_world_size()
    # torchrun says which rank this is. The global batch is the same on any number of them.
    dataset = StreamingDataset(
        local=str(options.data), shuffle=True, batch_size=GLOBAL_BATCH // ranks
    )
    loader = StreamingDataLoader(dataset, num_workers=options.workers)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    checkpoint, step = options.out / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the same on all ranks
        step = saved["step"]

    def save() -> None:
        saved = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
            "step": step,
        }
        part = checkpoint.with_suffix(".part")
        torch.save(saved, part)
        part.replace(checkpoint)  # so that there is always a whole one

    while step < options.steps:
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            step += 1
            parts: list[Any] = [None] * ranks
            group.all_gather_object(parts, (loss.item(), batch["id"].tolist()))
            if rank == 0:
                losses, samples = zip(*parts)
                note(options.out, step, sum(losses) / ranks, chain(*samples))
                if step % options.every == 0:
                    save()
            if step == options.steps:
                break


def main() -> None:
    options = arguments(__doc__)
    torch.set_default_dtype(torch.float64)  # what differs between worlds is rounding alone
    group.init_process_group("gloo")
    if group.get_rank() == 0:
        write_waves(options.data)
    group.barrier()
    train(options)
    group.destroy_process_group()


if __name__ == "__main__":
    main()
