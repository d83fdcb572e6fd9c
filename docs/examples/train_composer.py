"""Trains with Composer, whose checkpoints have the state of the data set.

    python docs/examples/train_composer.py --out run

Kill it whenever you like. Started again, it goes on after the last checkpoint, in the middle of an epoch.
"""

from __future__ import annotations

import argparse
from itertools import chain
from typing import Any

import torch
from composer import Callback, Logger, State, Trainer
from composer.models import ComposerModel
from composer.utils import dist
from torch import nn
from waves import GLOBAL_BATCH, arguments, note, write_waves

from streamplug import StreamingDataLoader, StreamingDataset


class Net(ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, batch: Any) -> torch.Tensor:
        return self.layers(batch["x"])

    def loss(self, outputs: torch.Tensor, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(outputs, batch["y"])


class Notes(Callback):
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def batch_end(self, state: State, _: Logger) -> None:
        parts = dist.all_gather_object((state.loss.item(), state.batch["id"].tolist()))
        if dist.get_global_rank() == 0:
            losses, samples = zip(*parts)
            mean = sum(losses) / len(losses)
            note(self.options.out, state.timestamp.batch.value, mean, chain(*samples))


def main() -> None:
    options = arguments(__doc__)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    write_waves(options.data)
    dataset = StreamingDataset(
        local=str(options.data), shuffle=True, batch_size=GLOBAL_BATCH // dist.get_world_size()
    )
    model = Net()
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.Adam(model.parameters(), lr=0.01),
        train_dataloader=StreamingDataLoader(dataset, num_workers=options.workers),
        max_duration=f"{options.steps}ba",
        save_folder=str(options.out / "checkpoints"),
        save_interval=f"{options.every}ba",
        run_name="waves",
        autoresume=True,  # from the latest checkpoint there
        callbacks=[Notes(options)],
        device="cpu",
        progress_bar=False,
    )
    trainer.fit()


if __name__ == "__main__":
    main()
