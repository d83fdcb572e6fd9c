"""Reads an epoch of a data set by each kind of loader that Accelerate and transformers make of it."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any

import torch  # noqa: TID251
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import gather_object
from torch import nn  # noqa: TID251
from torch.utils.data import DataLoader  # noqa: TID251
from transformers import Trainer, TrainingArguments

from streamplug import StreamingDataset, World
from streamplug.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))

from waves import note, options_of, write_waves

BATCH = 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1).double()

    def forward(self, x: torch.Tensor, y: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.layer(x), y)}


class NotingTrainer(Trainer):
    """A Trainer that notes the samples of training and evaluation."""

    def __init__(self, out: Path, **kwargs: Any) -> None:
        self.seen: list[list[int]] = []
        settings = {"report_to": "none", "disable_tqdm": True, "use_cpu": True}
        sizes = {"per_device_train_batch_size": BATCH, "per_device_eval_batch_size": BATCH}
        own = {"save_strategy": "no", "num_train_epochs": 1, "remove_unused_columns": False}
        arguments = TrainingArguments(output_dir=str(out), **settings, **sizes, **own)
        super().__init__(Net(), arguments, **kwargs)

    def training_step(self, model: Any, inputs: Any, *args: Any) -> Any:
        self.seen.append(inputs.pop("id").tolist())
        return super().training_step(model, inputs, *args)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(inputs.pop("id").tolist())
        return super().prediction_step(model, inputs, *args, **kwargs)


def read(how: str, dataset: StreamingDataset, out: Path) -> list[list[int]]:
    """Return the samples of each batch of this rank."""
    if how == "train":
        trainer = NotingTrainer(out, train_dataset=dataset)
        trainer.train()
        return trainer.seen
    if how == "evaluate":
        trainer = NotingTrainer(out, eval_dataset=dataset)
        trainer.evaluate()
        return trainer.seen
    config = DataLoaderConfiguration(dispatch_batches="dispatch" in how)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    num_workers = int("workers" in how)
    loader = accelerator.prepare(DataLoader(dataset, batch_size=BATCH, num_workers=num_workers))
    return [batch["id"].tolist() for batch in loader]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--world", choices=["ranks", "one"])
    options = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        write_waves(options.data)
    world = World() if options.world == "one" else None
    ways = ("shard", "dispatch", "shard with workers", "dispatch with workers", "train", "evaluate")
    for number, how in enumerate(ways, 1):
        dataset = StreamingDataset(
            local=str(options.data), shuffle=True, batch_size=BATCH, world=world
        )
        try:
            seen = read(how, dataset, options.out)
        except ConfigError as error:
            print(f"{how}: {error}", flush=True)
            continue
        seen = gather_object(seen)
        if accelerator.is_main_process:
            note(options.out, number, 0.0, chain.from_iterable(seen))
    accelerator.end_training()


if __name__ == "__main__":
    main()
