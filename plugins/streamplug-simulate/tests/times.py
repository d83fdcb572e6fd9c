"""Simulations compared with runs by the clock, in some minutes: python times.py FILE."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from real_run import run
from streamplug_simulate import open_dataset, simulate

from streamplug import MDSWriter

SAMPLES, BYTES, SHARD = 2000, 10_000, 200_000
COMMON = {"batch_size": 20, "bandwidth": 4e6, "latency": 0.02, "step_seconds": 0.05}
SHUFFLED = {"shuffle": "window", "block_size": 200}
RUNS: dict[str, dict[str, Any]] = {
    "as stored": {},
    "as stored, half the bandwidth": {"bandwidth": 2e6},
    "as stored, 200 ms of latency": {"latency": 0.2},
    "window": SHUFFLED,
    "window, 200 samples ahead": {**SHUFFLED, "predownload": 200, "bandwidth": 2e6},
    "global": {"shuffle": "global"},
    "window, 2 nodes": {**SHUFFLED, "nodes": 2, "batch_size": 10, "bandwidth": 2e6},
    "window, 2 nodes of 2 ranks": {
        **SHUFFLED, "nodes": 2, "ranks_per_node": 2, "batch_size": 5, "bandwidth": 1.5e6,
    },
    "window, 2 workers": {**SHUFFLED, "workers": 2, "bandwidth": 2e6},
    "window, a limit, 2 epochs": {**SHUFFLED, "cache_limit": 8_000_000, "epochs": 2},
    "window, a limit too small": {**SHUFFLED, "cache_limit": 2_000_000},
}  # fmt: skip
TIMES = 3
"""Runs of each, of which the median counts."""


def main(target: Path, wanted: list[str]) -> None:
    """Measure, and write the figures."""
    with tempfile.TemporaryDirectory() as folder:
        root, random = Path(folder) / "set", np.random.default_rng(3)
        with MDSWriter(out=root, columns={"n": "int", "b": "bytes"}, size_limit=SHARD) as out:
            for n in range(SAMPLES):
                out.write({"n": n, "b": random.bytes(BYTES)})
        with open_dataset({"remote": str(root)}) as plan:
            found = [
                compared(plan, root, name, {**COMMON, **settings})
                for name, settings in RUNS.items()
                if not wanted or name in wanted
            ]
    target.write_text(json.dumps(found, indent=1) + "\n")


def compared(plan: Any, root: Path, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Simulate a run, and run it."""
    scenario = plan.scenario(**settings)
    simulated = simulate(plan, scenario)
    real = []
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as folder:
            real.append(run(root, Path(folder), scenario, processes=True))
    figures = {
        "run": name,
        "assumed": settings,
        "simulated": {
            "megabytes": round(sum(node.bytes for node in simulated.nodes) / 1e6, 1),
            "first": round(simulated.epochs[0].first_batch, 2),
            "seconds": round(sum(epoch.seconds for epoch in simulated.epochs), 2),
        },
        "real": {
            "megabytes": _median((sum(each["bytes"]) / 1e6 for each in real), 1),
            "first": _median((each["first"][0] for each in real), 2),
            "seconds": _median((sum(each["seconds"]) for each in real), 2),
        },
    }
    print(row(figures), flush=True)
    return figures


def row(figures: dict[str, Any]) -> str:
    """Return the line of a table of the documentation."""
    pairs = [
        f"{figures['simulated'][key]:g} / {figures['real'][key]:g}"
        for key in ("megabytes", "first", "seconds")
    ]
    return f"| {figures['run']} | {' | '.join(pairs)} |"


def _median(values: Any, digits: int) -> float:
    return round(float(np.median(list(values))), digits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
