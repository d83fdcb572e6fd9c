"""What the examples of trainers have in common: the data they learn, their options and their losses."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from streamplug import MDSWriter

SAMPLES = 300
GLOBAL_BATCH = 24
"""Samples per step, over all ranks: an epoch is 13 steps, the last of them filled up."""


def options_of(what: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--data", type=Path, default=Path("waves"), help="the data set")
    parser.add_argument("--out", type=Path, default=Path("run"), help="for checkpoints and losses")
    parser.add_argument("--steps", type=int, default=40, help="of the whole run")
    parser.add_argument("--every", type=int, default=4, help="steps between checkpoints")
    parser.add_argument("--workers", type=int, default=0, help="loader workers of each rank")
    return parser


def arguments(what: str | None) -> argparse.Namespace:
    options = options_of(what).parse_args()
    options.data, options.out = options.data.absolute(), options.out.absolute()
    return options


def write_waves(out: Path) -> None:
    """Write noisy sums of waves, if they are not there; one process of a machine does it."""
    if (out / "index.json").exists():
        return
    rng = np.random.default_rng(7)
    x = rng.normal(size=(SAMPLES, 8))
    y = np.sin(x).sum(1, keepdims=True) + rng.normal(size=(SAMPLES, 1)) / 10
    tokens = np.clip(4 * x + 16, 0, 31).astype(np.int64)  # for language models
    columns = {
        "id": "int",
        "x": "ndarray:float64:8",
        "y": "ndarray:float64:1",
        "tokens": "ndarray:int64:8",
    }
    with MDSWriter(out=out, columns=columns, size_limit="4kb", exist_ok=True) as writer:
        writer.write_batch({"id": np.arange(SAMPLES), "x": x, "y": y, "tokens": tokens})


def note(out: Path, step: int, loss: float, samples: Iterable[int]) -> None:
    """Write down the loss of a step, and which samples it was taken over."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "losses.jsonl").open("a") as log:
        line = {"step": step, "loss": loss, "samples": sorted(samples), "process": os.getpid()}
        log.write(json.dumps(line) + "\n")
