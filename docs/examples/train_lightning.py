"""Trains with PyTorch Lightning, whose checkpoints have the state of the loader as well.

    torchrun --nproc-per-node 2 docs/examples/train_lightning.py --out run

Kill it whenever you like. Started again, on any number of processes, it goes on after the last checkpoint.
"""

from __future__ import annotations

import argparse
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from waves import GLOBAL_BATCH, arguments, note, write_waves

from streamplug import StreamingDataLoader, StreamingDataset


class Waves(lightning.LightningDataModule):
    """What `Trainer.fit` takes; it may as well be given the loader itself."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options

    def prepare_data(self) -> None:
        write_waves(self.options.data)

    def train_dataloader(self) -> StreamingDataLoader:
        batch = GLOBAL_BATCH // self.trainer.world_size
        dataset = StreamingDataset(local=str(self.options.data), shuffle=True, batch_size=batch)
        return StreamingDataLoader(dataset, num_workers=self.options.workers)


class Net(lightning.LightningModule):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.layers(batch["x"]), batch["y"])
        mean = self.trainer.strategy.reduce(loss.detach())
        samples = self.all_gather(batch["id"]).flatten().tolist()
        if self.trainer.is_global_zero:
            note(self.options.out, self.global_step + 1, mean.item(), samples)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    options = arguments(__doc__)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),  # as torchrun says
        max_steps=options.steps,
        max_epochs=-1,
        callbacks=[ModelCheckpoint(options.out, every_n_train_steps=options.every, save_last=True)],
        logger=False,
        enable_progress_bar=False,
    )
    last = options.out / "last.ckpt"
    trainer.fit(Net(options), Waves(options), ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
