"""Fine-tunes a small chat model on conversations with the Trainer of transformers, on their answers alone.

    torchrun --nproc-per-node 2 docs/examples/train_conversations.py --batches packs --out run

Stop it whenever you like. Started again, it goes on after the last checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from streamplug_packing import PaddingCollator, VarlenCollator
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from train_transformers import LoaderState
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint
from waves import note, options_of

from streamplug import (
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
    TokenDataset,
    TokenPacks,
)

CONVERSATIONS, LENGTH = 120, 256
GLOBAL_BATCH = {"padded": 12, "varlen": 12, "packs": 4}
"""Samples, or rows of packed conversations, of a step over all ranks."""
# What stands inside `generation` are the tokens to train on.
TEMPLATE = """\
{% for message in messages %}<|{{ message.role }}|>\
{% if message.role == "assistant" %}\
{% generation %}{{ message.content }}<|end|>{% endgeneration %}\
{% else %}{{ message.content }}<|end|>{% endif %}\
{% endfor %}"""


def make_conversation(number: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(number)
    messages = [{"role": "system", "content": "You add numbers."}]
    for _ in range(rng.integers(1, 5)):
        terms = rng.integers(0, 50, rng.integers(2, 5)).tolist()
        question = f"What is {' + '.join(map(str, terms))}?"
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": f"It is {sum(terms)}."})
    return messages


def make_tokenizer() -> PreTrainedTokenizerFast:
    roles = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=roles,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (message["content"] for n in range(50) for message in make_conversation(n))
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|end|>", eos_token="<|end|>", chat_template=TEMPLATE
    )


def write_conversations(out: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write the tokens of conversations, and which of them to train on; one process of a machine does it."""
    if (out / "index.json").exists():
        return
    columns = {"id": "int", "input_ids": "ndarray:uint16", "assistant_mask": "ndarray:uint8"}
    with MDSWriter(out=out, columns=columns, size_limit="8kb", exist_ok=True) as writer:
        for number in range(CONVERSATIONS):
            encoded = tokenizer.apply_chat_template(
                make_conversation(number), return_dict=True, return_assistant_tokens_mask=True
            )
            tokens = np.array(encoded["input_ids"], np.uint16)
            mask = np.array(encoded["assistant_masks"], np.uint8)
            writer.write({"id": number, "input_ids": tokens, "assistant_mask": mask})


class Packs:
    """Makes a batch of the conversations in rows that were packed, with their numbers."""

    collate = VarlenCollator(loss_mask="assistant_mask")

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        begins = (rows["positions"] == 0) & (rows["documents"] >= 0)
        return {**self.collate(rows), "id": rows["documents"][begins]}


def make_loader(data: Path, batches: str, ranks: int = 1, workers: int = 0) -> StreamingDataLoader:
    settings = {"local": str(data), "shuffle": True, "batch_size": GLOBAL_BATCH[batches] // ranks}
    if batches == "packs":
        packs = TokenPacks(
            column="input_ids",
            length=LENGTH,
            columns=["assistant_mask"],
            extras=["documents", "positions"],
            documents_per_group=64,
        )
        dataset = TokenDataset(tokens=packs, **settings)
        return StreamingDataLoader(dataset, num_workers=workers, batch_transform=Packs())
    collators = {"padded": PaddingCollator, "varlen": VarlenCollator}
    collate = collators[batches](loss_mask="assistant_mask")
    dataset = StreamingDataset(**settings)
    return StreamingDataLoader(dataset, num_workers=workers, batch_transform=collate)


def make_model(words: int) -> LlamaForCausalLM:
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    # With a cache, transformers does not look at positions to tell conversations apart.
    config = LlamaConfig(**size, **heads, vocab_size=words, use_cache=False)
    return LlamaForCausalLM(config).double()


class ChatTrainer(Trainer):
    """A Trainer that takes its batches from a loader."""

    def __init__(self, loader: StreamingDataLoader, **kwargs: Any) -> None:
        self.loader = loader
        super().__init__(**kwargs, train_dataset=loader.dataset, callbacks=[LoaderState(loader)])

    def get_train_dataloader(self) -> StreamingDataLoader:
        return self.loader  # as it is: it deals batches to ranks by itself

    # Only to write down the loss of every step.
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        samples = gather_object(inputs.pop("id").tolist())
        loss = super().training_step(model, inputs, num_items_in_batch)
        mean = self.accelerator.reduce(loss.detach(), "mean")
        if self.is_world_process_zero():
            note(self.args.out, self.state.global_step + 1, mean.item(), samples)
        return loss


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--batches", choices=GLOBAL_BATCH, default="packs")
    options = parser.parse_args()
    settings = TrainingArguments(
        output_dir=str(options.out),
        max_steps=options.steps,
        save_steps=options.every,
        ignore_data_skip=True,  # the loader goes on where it was: nothing is to be skipped
        remove_unused_columns=False,
        lr_scheduler_type="constant",
        learning_rate=0.01,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    settings.out = options.out
    tokenizer = make_tokenizer()
    with settings.main_process_first():
        write_conversations(options.data, tokenizer)
        options.out.mkdir(parents=True, exist_ok=True)  # where all processes look for checkpoints
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    loader = make_loader(options.data, options.batches, ranks, options.workers)
    trainer = ChatTrainer(loader, model=make_model(len(tokenizer)), args=settings)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.out))


if __name__ == "__main__":
    main()
