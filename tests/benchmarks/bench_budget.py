"""Batches of limited cost: how full and how equal they are, and what planning a billion samples takes.

Usage: python bench_budget.py [--samples 1e9] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from streamplug_budget import BatchBudget
from streamplug_budget.planner import BudgetPlanner
from streamplug_budget.sample_lengths import SampleLengths, StreamLengths, summarize_lengths
from streamplug_budget.windows import CostModel
from streamplug_tokens.memory_map import MappedFile

from streamplug.plan import Position, Segment, ShardSampler, Streams, WeightedMixture, rows_of
from streamplug.plugin import make
from streamplug.types import World

MARK = b"lengths for bench_budget"
LIMIT, RANKS = 65_536, 8
LOG_MEAN = 6.4  # a mean length of about 1,000
SAMPLES_PER_SHARD = 10_000
STEPS_AT_RANDOM = 30


class FileCache:
    """Keeps the result of a first pass in a file, like the cache of a data set."""

    def __init__(self, folder):
        self.folder, self.seconds = folder, 0.0

    def array(self, key, compute):
        path = self.folder / "counts.npy"
        if not path.exists():
            begun = time.perf_counter()
            np.save(path, compute())
            self.seconds = time.perf_counter() - begun
        return np.load(path, mmap_mode="r")


def write_lengths(path, count):
    """Write lognormal lengths (sigma 1) of at most a quarter of the limit as uint32."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(MARK)
        for start in range(0, count, 1 << 22):
            part = rng.lognormal(LOG_MEAN, 1, min(1 << 22, count - start))
            np.clip(part, 1, LIMIT // 4).astype("<u4").tofile(file)
    mapped = MappedFile(path).array(MARK, len(MARK), "<i8", (count // 2,))
    total, longest, digest = summarize_lengths(np.asarray(mapped).view(np.uint32)).tolist()
    return SampleLengths([StreamLengths(mapped, count, total, longest, f"{digest:x}")])


def make_planner(lengths, count, budget, cache):
    starts = np.arange(0, count + SAMPLES_PER_SHARD, SAMPLES_PER_SHARD)
    starts[-1] = count
    streams = Streams(
        starts,
        [0, len(starts) - 1],
        WeightedMixture((count,), "balanced", 1, ShardSampler()),
        make("shuffle", "window"),
        shuffled=True,
        seed=1,
    )
    return BudgetPlanner(streams, CostModel(lengths, budget, None), cache)


def make_epoch(planner, nodes):
    return planner.epoch(0, [Segment(Position(), World(nodes, RANKS // nodes), RANKS, nodes)])


def anonymous_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def measure_balance(lengths, count, folder, nodes):
    """Return how full and how equal the batches of some steps are, with and without padding and attention."""
    figures = {}
    for pad_to in ("none", "batch"):
        for quadratic in (0.0, 1 / (6 * 4096)):
            budget = BatchBudget(limit=LIMIT, column="tokens", pad_to=pad_to, quadratic=quadratic)
            cache = FileCache(folder / f"{nodes} {pad_to} {quadratic}")
            cache.folder.mkdir(exist_ok=True)
            plan = make_epoch(make_planner(lengths, count, budget, cache), nodes)
            world = World(nodes, RANKS // nodes)
            steps = np.arange(min(plan.steps(world), 2000))
            costs, tokens = [], []
            for rank in range(RANKS):
                rows = rows_of(*plan.ids(World(nodes, RANKS // nodes, rank=rank), steps))
                of_rank = [lengths.of(row) for row in rows]
                each = [budget.costs(row) for row in of_rank]
                costs.append([c.sum() if pad_to == "none" else len(c) * c.max() for c in each])
                tokens.append([(row.sum(), len(row) * row.max()) for row in of_rank])
            costs, tokens = np.array(costs), np.array(tokens)
            padded = tokens[..., 1].sum() if pad_to == "batch" else costs.size * LIMIT
            used = tokens[..., 0].sum() if pad_to == "batch" else costs.sum()
            name = f"{'padded' if pad_to == 'batch' else 'packed'}, {'attention' if quadratic else 'linear'}"
            ratio = costs.max(0) / costs.mean(0)
            figures[name] = {
                "padding": round(1 - used / padded, 4),
                "fill": round(costs.mean() / LIMIT, 4),
                "max over mean of ranks": round(float(ratio.mean()), 4),
                "max over mean of ranks, worst step": round(float(ratio.max()), 4),
            }
    return figures


def measure_planning(lengths, count, folder):
    """Return what the first pass and single steps take for all samples."""
    cache = FileCache(folder)
    before = anonymous_bytes()
    budget = BatchBudget(limit=LIMIT, column="tokens")
    plan, world = make_epoch(make_planner(lengths, count, budget, cache), 1), World(1, RANKS)
    total = plan.steps(world)
    rng, cold = np.random.default_rng(1), []
    for step in rng.integers(0, total, STEPS_AT_RANDOM).tolist():
        begun = time.perf_counter()
        plan.ids(world, np.array([step]))
        cold.append(time.perf_counter() - begun)
    begun, steps = time.perf_counter(), np.arange(total // 2, total // 2 + 2000)
    for step in steps.tolist():
        plan.ids(world, np.array([step]))
    return {
        "samples": count,
        "steps": total,
        "first pass, seconds": round(cache.seconds, 1),
        "step at random, ms": round(float(np.median(cold)) * 1e3, 2),
        "step in order, ms": round((time.perf_counter() - begun) / len(steps) * 1e3, 3),
        "resident beyond mapped lengths, MB": round((anonymous_bytes() - before) / 1e6, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=float, default=1e9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder, count = Path(name), int(arguments.samples)
        lengths = write_lengths(folder / "lengths", count)
        figures = {"planning": measure_planning(lengths, count, folder)}
        few = min(count, 4_000_000)
        lengths = write_lengths(folder / "few", few)
        for nodes in (1, 8):
            figures[f"{RANKS} ranks on {nodes} nodes"] = measure_balance(
                lengths, few, folder, nodes
            )
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
