"""Trains a small language model with the Trainer of transformers, and continues in the middle of an epoch.

    python docs/examples/train_transformers.py --out run

Stop it whenever you like. Started again, it goes on after the last checkpoint.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint
from waves import GLOBAL_BATCH, arguments, note, write_waves

from streamplug import StreamingDataLoader, StreamingDataset


class LoaderState(TrainerCallback, ExportableState):
    """Keeps the state of a loader in trainer_state.json of every checkpoint."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"loader": self.loader.state_dict()}}

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if len(self.loader) % args.gradient_accumulation_steps:
            raise ValueError("the Trainer cannot continue where an epoch ends within a step")
        saved = state.stateful_callbacks[type(self).__name__]
        self.loader.load_state_dict(saved["attributes"]["loader"])


class StreamingTrainer(Trainer):
    """A Trainer that takes its batches from a loader."""

    def __init__(self, loader: StreamingDataLoader, **kwargs: Any) -> None:
        self.loader = loader
        super().__init__(**kwargs, train_dataset=loader.dataset, callbacks=[LoaderState(loader)])

    def get_train_dataloader(self) -> StreamingDataLoader:
        return self.loader  # as it is: it deals batches to ranks by itself

    # Only to write down the loss of every step.
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        samples = self.accelerator.gather(inputs.pop("id")).tolist()
        loss = super().training_step(model, inputs, num_items_in_batch)
        mean = self.accelerator.reduce(loss.detach(), "mean")
        if self.is_world_process_zero():
            note(self.args.out, self.state.global_step + 1, mean.item(), samples)
        return loss


def for_the_model(columns: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_ids": torch.from_numpy(columns["tokens"]),
        "labels": torch.from_numpy(columns["tokens"]),
        "id": torch.from_numpy(columns["id"]),
    }


def main() -> None:
    options = arguments(__doc__)
    batch = GLOBAL_BATCH // int(os.environ.get("WORLD_SIZE", "1"))
    settings = TrainingArguments(
        output_dir=str(options.out),
        per_device_train_batch_size=batch,
        max_steps=options.steps,
        save_steps=options.every,
        ignore_data_skip=True,  # the loader goes on where it was: nothing is to be skipped
        lr_scheduler_type="constant",
        learning_rate=0.01,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    settings.out = options.out
    with settings.main_process_first():
        write_waves(options.data)
        options.out.mkdir(parents=True, exist_ok=True)  # where all processes look for checkpoints
    dataset = StreamingDataset(local=str(options.data), shuffle=True, batch_size=batch)
    loader = StreamingDataLoader(
        dataset, num_workers=options.workers, batch_transform=for_the_model
    )
    torch.manual_seed(0)
    size = {"n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    words = {"vocab_size": 32, "bos_token_id": None, "eos_token_id": None}
    # Dropout would differ from one number of processes to another.
    dropout = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(**size, **words, **dropout)
    trainer = StreamingTrainer(loader, model=GPT2LMHeadModel(config).double(), args=settings)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.out))


if __name__ == "__main__":
    main()
