"""Trains a small language model on sequences of lognormal lengths, in batches of fixed size and of a budget.

    torchrun --nproc-per-node 4 docs/examples/train_budget.py --out budget.json

Each of four ways to make batches has a model and a loader of its own, and they take their steps in turn, so
that whatever else slows down the machine slows down all of them. The figures of the run are added to the
file; docs/plots/budget.py draws them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as group
from streamplug_budget import BatchBudget
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset

SAMPLES, WORDS, LONGEST = 6_000, 256, 1_024
HIDDEN, HEADS, LAYERS = 128, 4, 2
WARM_UP = 3
"""Steps that are not timed."""
WAYS = ("batch_size, padded", "batch_size, packed", "budget, padded", "budget, packed")
IGNORED = -100


def write_sequences(out: Path, samples: int = SAMPLES, longest: int = LONGEST) -> None:
    """Write sequences with lognormal lengths; a word depends on the one before it and on chance."""
    if (out / "index.json").exists():
        return
    rng = np.random.default_rng(7)
    lengths = np.clip(rng.lognormal(4.5, 1, samples), 8, longest).astype(int)
    columns = {"id": "int", "tokens": "ndarray:int64"}
    with MDSWriter(out=out, columns=columns, size_limit="256kb", exist_ok=True) as writer:
        for sample, length in enumerate(lengths.tolist()):
            words = rng.integers(0, 4, length)
            for place in range(1, length):
                words[place] += 5 * words[place - 1] % WORDS
            writer.write({"id": sample, "tokens": words % WORDS})


def sequences(columns: dict[str, Any]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the tokens, the tokens to predict, and the positions of each sample."""
    tokens = [torch.from_numpy(values) for values in columns["tokens"]]
    labels = [nn.functional.pad(words[1:], (0, 1), value=IGNORED) for words in tokens]
    return tokens, labels, [torch.arange(len(words)) for words in tokens]


def pad(columns: dict[str, Any]) -> dict[str, Any]:
    """Return a row for each sample, as long as the longest."""
    tokens, labels, positions = sequences(columns)
    return {
        "tokens": pad_sequence(tokens, batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        "positions": pad_sequence(positions, batch_first=True),
        "lengths": list(map(len, tokens)),
    }


def pack(columns: dict[str, Any]) -> dict[str, Any]:
    """Return one row with all samples, one after the other."""
    tokens, labels, positions = sequences(columns)
    rows = {"tokens": tokens, "labels": labels, "positions": positions}
    packed = {name: torch.cat(parts)[None] for name, parts in rows.items()}
    return {**packed, "lengths": list(map(len, tokens))}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)])
        self.attention, self.projection = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.network = nn.Sequential(
            nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN)
        )

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        heads = (
            self.attention(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        )
        # Each document of a packed row attends to itself. Padding stands at the end of a row, where no
        # token before it sees it, so it needs no mask.
        parts = heads.split(lengths, 3) if len(x) == 1 else [heads]
        attended = [scaled_dot_product_attention(*part, is_causal=True) for part in parts]
        x = x + self.projection(torch.cat(attended, 2).transpose(1, 2).flatten(2))
        return x + self.network(self.norms[1](x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, HIDDEN), nn.Embedding(LONGEST, HIDDEN)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, WORDS))

    def forward(self, batch: dict[str, Any]) -> Tensor:
        x = self.words(batch["tokens"]) + self.places(batch["positions"])
        for layer in self.layers:
            x = layer(x, batch["lengths"])
        labels = batch["labels"].flatten()
        return cross_entropy(
            self.head(x).flatten(0, 1), labels, ignore_index=IGNORED, reduction="sum"
        )


class Way:
    """A model that is trained with batches of one kind, and what was measured.

    Attributes:
        records: For each step the tokens, the tokens with padding, the seconds, the seconds of the processor,
            and the sum of the losses.
    """

    def __init__(self, name: str, options: argparse.Namespace, batch_size: int) -> None:
        budget, padded = name.startswith("budget"), name.endswith("padded")
        batching: dict[str, Any] = {"batch_size": batch_size}
        if budget:
            limit = BatchBudget(
                limit=options.limit, column="tokens", pad_to="batch" if padded else "none"
            )
            batching = {"batching_method": "budget", "batch_budget": limit}
        dataset = StreamingDataset(local=str(options.data), shuffle=True, **batching)
        self.batches = iter(StreamingDataLoader(dataset, batch_transform=pad if padded else pack))
        torch.manual_seed(0)
        self.model = DistributedDataParallel(Model())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.records: list[tuple[float, ...]] = []

    def step(self) -> None:
        batch = next(self.batches)
        tokens = torch.tensor(float(sum(batch["lengths"]) - len(batch["lengths"])))
        group.all_reduce(tokens)  # the loss is the mean over the tokens of all ranks
        group.barrier()
        begin, busy = time.perf_counter(), time.thread_time()
        self.optimizer.zero_grad()
        loss = self.model(batch)
        (loss * group.get_world_size() / tokens).backward()
        self.optimizer.step()
        times = time.perf_counter() - begin, time.thread_time() - busy
        sizes = sum(batch["lengths"]), batch["tokens"].numel()
        self.records.append((*sizes, *times, loss.item() / tokens.item()))


def summarize(records: np.ndarray) -> dict[str, float]:
    """Return the figures of one way; `records` has the shape ``[ranks, steps, 5]``."""
    tokens, cells, _, _, losses = np.moveaxis(records, 2, 0)
    seconds, busy = np.moveaxis(records[:, WARM_UP:, 2:4], 2, 0).max(1)
    return {
        "tokens_per_step": tokens.sum(0).mean(),
        "padding": 1 - tokens.sum() / cells.sum(),
        "largest_batch": cells.max(),
        "imbalance": (cells.max(0) / cells.mean(0)).mean(),
        "seconds": np.median(seconds),
        "seconds_95": np.quantile(seconds, 0.95),
        "slowest_rank": np.median(busy),
        "slowest_rank_95": np.quantile(busy, 0.95),
        "tokens_per_second": tokens[:, WARM_UP:].sum() / seconds.sum(),
        "first_loss": losses[:, 0].sum(),
        "last_loss": losses[:, -5:].sum(0).mean(),
    }


def train(options: argparse.Namespace) -> dict[str, Any]:
    dataset = StreamingDataset(local=str(options.data), batch_size=1)
    mean = np.mean([len(sample["tokens"]) for sample in dataset])
    batch_size = round(options.limit / mean)  # as many tokens a step as the budget has
    ways = {name: Way(name, options, batch_size) for name in WAYS}
    for _ in range(options.steps):
        for way in ways.values():
            way.step()
    figures = {}
    for name, way in ways.items():
        records: list[Any] = [None] * group.get_world_size()
        group.all_gather_object(records, way.records)
        figures[name] = {key: float(value) for key, value in summarize(np.array(records)).items()}
    return {
        "limit": options.limit,
        "batch_size": batch_size,
        "steps": options.steps,
        "ranks": group.get_world_size(),
        "cores": os.cpu_count(),
        "parameters": sum(values.numel() for values in Model().parameters()),
        "ways": figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("sequences"), help="the data set")
    parser.add_argument("--out", type=Path, help="JSON file to which the figures are added")
    parser.add_argument("--steps", type=int, default=60, help="of each way")
    parser.add_argument("--limit", type=int, default=2_048, help="tokens of a rank's batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    group.init_process_group("gloo")
    if group.get_rank() == 0:
        write_sequences(options.data)
    group.barrier()
    run = train(options)
    if group.get_rank() == 0:
        for name, figures in run["ways"].items():
            print(name, *(f"{key}={value:.4g}" for key, value in figures.items()))
        if options.out is not None:
            runs = json.loads(options.out.read_text()) if options.out.exists() else []
            options.out.write_text(json.dumps([*runs, run], indent=1) + "\n")
    group.destroy_process_group()


if __name__ == "__main__":
    main()
