"""Fine-tuning on conversations: losses of collators of transformers, on two processes, and after a stop."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch  # noqa: TID251
import train_conversations as example
from datasets import Dataset
from streamplug_packing import PaddingCollator, VarlenCollator
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    Trainer,
    TrainingArguments,
)

from streamplug import StreamingDataLoader, StreamingDataset

pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLE = "train_conversations.py"
STEPS = 12


@pytest.fixture(scope="module")
def tokenizer():
    return example.make_tokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    out = tmp_path_factory.mktemp("conversations") / "set"
    example.write_conversations(out, tokenizer)
    return out


def features(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the samples of a batch as collators of transformers take them."""
    return [
        {
            "input_ids": tokens.astype(int).tolist(),
            "labels": np.where(mask != 0, tokens.astype(int), -100).tolist(),
        }
        for tokens, mask in zip(columns["input_ids"], columns["assistant_mask"])
    ]


@pytest.fixture(scope="module")
def collators(tokenizer):
    padded, flat = (
        DataCollatorForSeq2Seq(tokenizer),
        DataCollatorWithFlattening(return_flash_attn_kwargs=True),
    )
    return {
        "DataCollatorForSeq2Seq": lambda columns: dict(padded(features(columns))),
        "DataCollatorWithFlattening": lambda columns: dict(flat(features(columns))),
        "PaddingCollator": PaddingCollator(
            loss_mask="assistant_mask", padding=tokenizer.pad_token_id
        ),
        "VarlenCollator": VarlenCollator(loss_mask="assistant_mask"),
    }


def make_loader(folder: Any, collate: Any) -> StreamingDataLoader:
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=8)
    return StreamingDataLoader(dataset, batch_transform=collate)


def test_answers_are_what_is_trained_on(folder, tokenizer):
    sample = StreamingDataset(local=str(folder), batch_size=1)[0]
    answers = "".join(
        f"{message['content']}<|end|>"
        for message in example.make_conversation(0)
        if message["role"] == "assistant"
    )
    assert tokenizer.decode(sample["input_ids"][sample["assistant_mask"] != 0]) == answers


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("PaddingCollator", "DataCollatorForSeq2Seq"),
        ("VarlenCollator", "DataCollatorWithFlattening"),
    ],
)
def test_batches_are_those_of_transformers(folder, collators, ours, theirs):
    loaders = [make_loader(folder, collators[name]) for name in (ours, theirs)]
    for found, expected in zip(*loaders, strict=True):
        assert len(found["id"]) == 8
        for name, values in expected.items():
            if isinstance(values, torch.Tensor):
                assert found[name].dtype == values.dtype
                assert torch.equal(found[name], values), name
            else:
                assert found[name] == values


def test_losses_are_those_of_collators_of_transformers(folder, tokenizer, collators):
    def train(collate: Any) -> list[float]:
        model = example.make_model(len(tokenizer))
        optimizer, losses = torch.optim.AdamW(model.parameters(), 0.01), []
        for batch in islice(make_loader(folder, collate), STEPS):
            batch.pop("id", None)
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train(collators["DataCollatorForSeq2Seq"])
    assert expected[-1] < expected[0] - 2
    for name in ("DataCollatorWithFlattening", "PaddingCollator", "VarlenCollator"):
        assert train(collators[name]) == pytest.approx(expected, rel=0, abs=1e-5)


def losses_of_documents(model: Any, batches: Any) -> dict[int, float]:
    """Return the sum of losses over the labels of each conversation, by its number."""
    losses: dict[int, float] = {}
    with torch.no_grad():
        for batch in batches:
            numbers, labels = batch.pop("id").tolist(), batch.pop("labels")
            logits = model(**batch).logits[:, :-1].transpose(1, 2)
            each = torch.nn.functional.cross_entropy(logits, labels[:, 1:], reduction="none")
            if "cu_seq_lens_q" in batch:
                # The prediction of the first token of the next conversation has no label.
                sizes = batch["cu_seq_lens_q"].diff().tolist()
                parts = torch.nn.functional.pad(each[0], (1, 0)).split(sizes)
            else:
                parts = each
            assert len(numbers) == len(parts)
            losses |= {number: part.sum().item() for number, part in zip(numbers, parts)}
    return losses


def test_conversations_in_packs_have_the_losses_that_they_have_alone(folder, tokenizer):
    model = example.make_model(len(tokenizer)).eval()
    found = {
        batches: losses_of_documents(model, example.make_loader(folder, batches))
        for batches in example.GLOBAL_BATCH
    }
    assert sorted(found["padded"]) == list(range(example.CONVERSATIONS))
    assert min(found["padded"].values()) > 10
    for losses in found.values():
        assert losses == pytest.approx(found["padded"], rel=0, abs=1e-5)


@pytest.mark.parametrize("batches", ["padded", "packs"])
def test_two_processes_and_a_stop_within_an_epoch_change_no_loss(run, batches):
    options = {"batches": batches, "data": run.place / "chat"}
    alone = run(EXAMPLE, f"chat-{batches}", steps=STEPS, **options)
    out = f"chat-{batches}-two"
    run(EXAMPLE, out, ranks=2, steps=5, every=1, **options)
    # The model's losses are in float32, where sums over two processes are rounded otherwise.
    run(EXAMPLE, out, workers=1, steps=STEPS, **options).check(alone, tolerance=1e-5)


@pytest.mark.parametrize("batches", example.GLOBAL_BATCH)
def test_the_trainer_of_trl_makes_the_same_steps(tmp_path, folder, tokenizer, batches):
    trl = pytest.importorskip("trl")

    def train(cls: Any, make_settings: Any, **options: Any) -> list[float]:
        loader, losses = example.make_loader(folder, batches), []

        class Watched(cls):
            def get_train_dataloader(self) -> StreamingDataLoader:
                return loader

            def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
                inputs.pop("id")
                loss = super().training_step(model, inputs, num_items_in_batch)
                losses.append(loss.item())
                return loss

        settings = make_settings(
            output_dir=str(tmp_path / cls.__name__),
            max_steps=4,
            save_strategy="no",
            remove_unused_columns=False,
            lr_scheduler_type="constant",
            learning_rate=0.01,
            bf16=False,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        Watched(model=example.make_model(len(tokenizer)), args=settings, **options).train()
        return losses

    expected = train(Trainer, TrainingArguments, train_dataset=StreamingDataset(local=str(folder)))
    make_settings = partial(trl.SFTConfig, dataset_kwargs={"skip_prepare_dataset": True})
    unread = Dataset.from_dict({"input_ids": [[0]]})
    found = train(trl.SFTTrainer, make_settings, train_dataset=unread, processing_class=tokenizer)
    assert found == pytest.approx(expected, rel=0, abs=1e-5)
