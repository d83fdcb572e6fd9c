"""Trains a small language model with the Trainer of transformers, in batches of a budget of tokens.

    torchrun --nproc-per-node 2 docs/examples/train_transformers_budget.py --out run

Every optimizer step has the same samples on 1, 2 and 4 processes. Stop it whenever you like. Started again,
it goes on after the last checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import gather_object
from streamplug_budget import BatchBudget
from torch.nn.utils.rnn import pad_sequence
from train_budget import WORDS, write_sequences
from train_transformers import LoaderState
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
from waves import note, options_of

from streamplug import StreamingDataLoader, StreamingDataset

LIMIT, LONGEST = 256, 64
MICRO_BATCHES = 4
"""Batches of an optimizer step, over all ranks and accumulated."""
IGNORED = -100


def pad(columns: dict[str, Any]) -> dict[str, Any]:
    """Return a row for each sample, as long as the longest."""
    tokens = [torch.from_numpy(values) for values in columns["tokens"]]
    rows = pad_sequence(tokens, batch_first=True)
    mask = pad_sequence([torch.ones_like(values) for values in tokens], batch_first=True)
    labels = rows.masked_fill(mask == 0, IGNORED)
    return {"input_ids": rows, "attention_mask": mask, "labels": labels, "id": columns["id"]}


def pack(columns: dict[str, Any]) -> dict[str, Any]:
    """Return one row with all samples; transformers sees by the positions where each begins."""
    tokens = [torch.from_numpy(values) for values in columns["tokens"]]
    row, positions = torch.cat(tokens), torch.cat([torch.arange(len(values)) for values in tokens])
    labels = row.masked_fill(positions == 0, IGNORED)  # nothing before it predicts a first token
    batch = {"input_ids": row, "position_ids": positions, "labels": labels}
    return {**{name: values[None] for name, values in batch.items()}, "id": columns["id"]}


class Endless:
    """The batches of one epoch after the other. It has no length, as epochs differ in theirs."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            yield from self.loader


class BudgetTrainer(Trainer):
    """A Trainer that takes its batches from a loader."""

    def __init__(self, loader: StreamingDataLoader, **kwargs: Any) -> None:
        self.loader, self.noted = loader, (0.0, [])
        super().__init__(**kwargs, train_dataset=loader.dataset, callbacks=[LoaderState(loader)])

    def get_train_dataloader(self) -> Endless:
        return Endless(self.loader)

    # Only to write down the loss of every step.
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        samples = gather_object(inputs.pop("id").tolist())
        loss = super().training_step(model, inputs, num_items_in_batch)
        mean = self.accelerator.reduce(loss.detach(), "mean").item()
        self.noted = self.noted[0] + mean, self.noted[1] + samples
        if self.accelerator.sync_gradients:
            if self.is_world_process_zero():
                note(self.args.out, self.state.global_step + 1, *self.noted)
            self.noted = 0.0, []
        return loss


def make_model() -> GPT2LMHeadModel:
    size = {"n_positions": LONGEST, "n_embd": 16, "n_layer": 1, "n_head": 2}
    words = {"vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None}
    # Dropout would differ from one number of processes to another. With a cache, positions are not looked at.
    others = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(**size, **words, **others)).double()


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--pad-to", choices=["none", "batch"], default="none")
    options = parser.parse_args()
    settings = TrainingArguments(
        output_dir=str(options.out),
        gradient_accumulation_steps=MICRO_BATCHES // int(os.environ.get("WORLD_SIZE", "1")),
        max_steps=options.steps,  # of the optimizer: an Endless loader needs it
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
        write_sequences(options.data, samples=300, longest=LONGEST)
        options.out.mkdir(parents=True, exist_ok=True)  # where all processes look for checkpoints
    budget = BatchBudget(
        limit=LIMIT, column="tokens", pad_to=options.pad_to, micro_batches=MICRO_BATCHES
    )
    dataset = StreamingDataset(
        local=str(options.data), shuffle=True, batching_method="budget", batch_budget=budget
    )
    loader = StreamingDataLoader(
        dataset,
        num_workers=options.workers,
        batch_transform=pad if options.pad_to == "batch" else pack,
    )
    trainer = BudgetTrainer(loader, model=make_model(), args=settings)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.out))


if __name__ == "__main__":
    main()
