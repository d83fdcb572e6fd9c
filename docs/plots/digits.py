"""Draws docs/_static/digits.svg: one training run on different numbers of ranks.

    python docs/plots/digits.py

Runs docs/examples/digits.py on 1, 2, 4 and 8 ranks, and once on 4 ranks until it is killed and then
on 8. Needs matplotlib, scikit-learn and torch; takes a few minutes on two cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
EPOCHS = 6
RANKS = (1, 2, 4, 8)
BEFORE, AFTER = 4, 8  # ranks of the run that is killed
KILL_AT = 80
NOTHING = 1e-18  # where a difference of zero is drawn
COLORS = ("#94a3b8", "#0ea5e9", "#16a34a", "#9333ea", "#dc2626")


def start(ranks: int, checkpoint: Path) -> subprocess.Popen[bytes]:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    options = {"data": checkpoint.with_name("digits"), "checkpoint": checkpoint, "epochs": EPOCHS}
    given = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [sys.executable, *torchrun, str(DOCS / "examples" / "digits.py"), *given],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def losses(checkpoint: Path) -> list[float]:
    return torch.load(checkpoint)["losses"] if checkpoint.exists() else []


def train(ranks: int, checkpoint: Path) -> list[float]:
    if start(ranks, checkpoint).wait(600):
        raise SystemExit(f"training on {ranks} ranks failed")
    return losses(checkpoint)


def killed(ranks: int, checkpoint: Path) -> int:
    """Train until the checkpoint is far enough, kill all processes, and return its steps."""
    launcher = start(ranks, checkpoint)
    while len(losses(checkpoint)) < KILL_AT:
        if launcher.poll() is not None:
            raise SystemExit("it ended before it was killed")
        time.sleep(0.02)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    launcher.kill()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    launcher.wait(60)
    return len(losses(checkpoint))


def draw(curves: dict[str, list[float]], kill: int, out: Path) -> None:
    mpl.rcParams.update(
        {"svg.hashsalt": "digits", "font.size": 9, "axes.spines.top": False, "svg.fonttype": "none"}
        | {"axes.spines.right": False, "font.family": "sans-serif", "axes.axisbelow": True}
    )
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(7.2, 4.9), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    alone = np.array(curves["1 rank"])
    steps = np.arange(1, len(alone) + 1)
    widths = np.linspace(7, 1, len(curves))
    for (name, curve), color, width in zip(curves.items(), COLORS, widths):
        upper.plot(steps, curve, color=color, linewidth=width, label=name)
        apart = np.abs(np.array(curve) - alone)
        if curve is not curves["1 rank"]:
            lower.plot(
                steps, np.maximum(apart, NOTHING), ".", color=color, markersize=3.5, label=name
            )
    upper.set(ylabel="loss of the global batch", ylim=(0, None))
    upper.legend(frameon=False)
    lower.set(yscale="log", ylim=(NOTHING / 3, 3e-6), xlabel="step", xlim=(0, len(alone)))
    lower.set_ylabel("difference to 1 rank")
    lower.set_yticks(
        [NOTHING, 1e-15, 1e-12, 1e-9, 1e-6], ["0", *(f"$10^{{-{n}}}$" for n in (15, 12, 9, 6))]
    )
    lower.minorticks_off()
    lower.grid(axis="y", color="#e2e8f0", linewidth=0.8)
    for axes in (upper, lower):
        axes.axvline(kill, color=COLORS[-1], linewidth=0.8, linestyle=(0, (4, 3)))
    note = f"all {BEFORE} processes killed,\ncontinued by {AFTER} from step {kill}"
    upper.annotate(
        note,
        (kill, 1),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0),
        textcoords="offset points",
        color=COLORS[-1],
        va="top",
    )
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        curves = {
            f"{ranks} rank{'s'[: ranks > 1]}": train(ranks, place / f"{ranks}.pt")
            for ranks in RANKS
        }
        kill = killed(BEFORE, place / "killed.pt")
        curves[f"{BEFORE} ranks, then {AFTER}"] = train(AFTER, place / "killed.pt")
    alone = np.array(curves["1 rank"])
    most = max(float(np.abs(np.array(curve) - alone).max()) for curve in curves.values())
    print(f"{len(alone)} steps; losses differ by {most:.1e} at most")
    draw(curves, kill, DOCS / "_static" / "digits.svg")


if __name__ == "__main__":
    main()
