"""Trains with Ray Train on two workers, and continues where it stood when one of them is lost.

    python docs/examples/train_ray.py --out run

Kill a worker, or all of it, whenever you like. Started again, it goes on after the last checkpoint.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as group
from ray import train
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn
from waves import GLOBAL_BATCH, arguments, note, write_waves

from streamplug import StreamingDataLoader, StreamingDataset

WORKERS = 2


def train_here(config: dict[str, Any]) -> None:
    """What each worker does."""
    options: argparse.Namespace = config["options"]
    torch.set_default_dtype(torch.float64)
    rank, ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
    # Ray says which rank this is, as torchrun does. Leave out `ray.train.torch.prepare_data_loader`.
    dataset = StreamingDataset(
        local=str(options.data), shuffle=True, batch_size=GLOBAL_BATCH // ranks
    )
    loader = StreamingDataLoader(dataset, num_workers=options.workers)
    torch.manual_seed(0)
    model = prepare_model(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "checkpoint.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the same on all ranks
        step = saved["step"]

    def save(loss: float) -> None:
        """Report what there is, with a checkpoint of rank 0; all ranks must."""
        with tempfile.TemporaryDirectory() as folder:
            saved = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(),
                "step": step,
            }
            torch.save(saved, Path(folder) / "checkpoint.pt")
            checkpoint = train.Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"step": step, "loss": loss}, checkpoint=checkpoint)

    while step < options.steps:
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            step += 1
            parts: list[Any] = [None] * ranks
            group.all_gather_object(parts, (loss.item(), batch["id"].tolist()))
            losses, samples = zip(*parts)
            if rank == 0:
                note(options.out, step, sum(losses) / ranks, chain(*samples))
            if step % options.every == 0:
                save(sum(losses) / ranks)
            if step == options.steps:
                break


def main() -> None:
    options = arguments(__doc__)
    write_waves(options.data)
    ray.init(num_cpus=WORKERS, include_dashboard=False)
    trainer = TorchTrainer(
        train_here,
        train_loop_config={"options": options},
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(
            name="waves",
            storage_path=str(options.out / "ray"),
            failure_config=train.FailureConfig(max_failures=3),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
