"""Draws docs/_static/budget.svg and writes the table of docs/howto/budget.md.

    torchrun --nproc-per-node 4 docs/examples/train_budget.py --out docs/plots/budget.json
    python docs/plots/budget.py

Each run of the program adds to the file. The median of each figure over the runs is shown. Needs matplotlib.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "howto" / "budget.md"
INK, SOFT, CARD = "#22313f", "#4a5a69", "#fbfcfd"
FIXED, BUDGET = "#d98032", "#1769aa"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "budget",
    "font.size": 10,
    "text.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.spines.bottom": False,
    "ytick.left": False,
    "xtick.bottom": False,
    "xtick.labelbottom": False,
    "figure.facecolor": CARD,
    "axes.facecolor": CARD,
}
DRAWN = {
    "padding": ("Padding", "{:.1%}"),
    "imbalance": ("Largest rank / mean, in tokens", "{:.2f}"),
    "slowest_rank": ("CPU seconds of the slowest rank", "{:.3f}"),
    "seconds": ("Seconds per step", "{:.2f}"),
}

Figures = dict[str, float]


def medians(runs: list[dict[str, Any]]) -> dict[str, Figures]:
    """Return the figures of each way: of several runs, the median."""
    return {
        way: {name: median(run["ways"][way][name] for run in runs) for name in figures}
        for way, figures in runs[0]["ways"].items()
    }


def draw(ways: dict[str, Figures], out: Path) -> None:
    plot, axes = plt.subplots(len(DRAWN), figsize=(4.2, 5.6), layout="constrained")
    colors = [BUDGET if way.startswith("budget") else FIXED for way in ways]
    for axis, (name, (title, shown)) in zip(axes, DRAWN.items()):
        values = [figures[name] for figures in ways.values()]
        bars = axis.barh(list(ways), values, color=colors, height=0.72)
        axis.bar_label(bars, [shown.format(value) for value in values], padding=4, color=SOFT)
        axis.invert_yaxis()
        axis.set_title(title, loc="left")
        axis.set_xlim(0, max(values) * 1.2)
    title = "Training with batches of fixed size and with a budget, padded and packed"
    plot.savefig(out, metadata={"Date": None, "Creator": None, "Title": title})
    text = out.read_text().replace("'DejaVu Sans'", "system-ui, sans-serif")
    out.write_text("\n".join(line.rstrip() for line in text.split("\n")))


def table(ways: dict[str, Figures]) -> str:
    head = ["Batches", "Tokens of a step", "Padding", "Largest batch", "Largest rank / mean"]
    head += ["CPU s, slowest rank", "s per step", "95 %", "Tokens/s"]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for way, figures in ways.items():
        shown = [
            f"{figures['tokens_per_step']:,.0f}",
            f"{figures['padding']:.1%}".replace("%", " %"),
            f"{figures['largest_batch']:,.0f}",
            f"{figures['imbalance']:.2f}",
            f"{figures['slowest_rank']:.3f}",
            f"{figures['seconds']:.2f}",
            f"{figures['seconds_95']:.2f}",
            f"{figures['tokens_per_second']:,.0f}",
        ]
        lines.append([way.replace("batch_size", "`batch_size`"), *shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def between(text: str, mark: str, new: str) -> str:
    """Put something between two comments of a page."""
    head, _, rest = text.partition(f"<!-- {mark} -->\n")
    _, _, tail = rest.partition(f"<!-- end of {mark} -->")
    return f"{head}<!-- {mark} -->\n{new}\n<!-- end of {mark} -->{tail}"


def main() -> None:
    ways = medians(json.loads((DOCS / "plots" / "budget.json").read_text()))
    with mpl.rc_context(STYLE):
        draw(ways, DOCS / "_static" / "budget.svg")
    PAGE.write_text(between(PAGE.read_text(), "figures", table(ways)))


if __name__ == "__main__":
    main()
