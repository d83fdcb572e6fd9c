"""Draws the plot of docs/reference/speed.md and fills in its table.

    python tests/benchmarks/bench_remote.py --json remote.json
    python docs/plots/remote.py remote.json

It needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "reference" / "speed.md"
INK, SOFT, CARD = "#22313f", "#4a5a69", "#fbfcfd"
OURS, BARE, PEERS = "#1769aa", "#b7c3ce", "#d98032"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "streamplug",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "ytick.left": False,
    "figure.facecolor": CARD,
    "axes.facecolor": CARD,
}
GROUPS = {
    "shards": "whole shards (MB/s)",
    "ranges": "samples by range (MB/s)",
    "first batch": "first batch, 20 ms away (ms)",
}

Figures = dict[str, dict[str, dict[str, float]]]


def value(each: dict[str, float]) -> float:
    return each["MB/s"] if "MB/s" in each else each["later"] * 1000


def colour(name: str) -> str:
    if name.startswith("streamplug"):
        return OURS
    return PEERS if name.startswith(("mosaicml", "litdata")) else BARE


def draw(figures: Figures) -> None:
    heights = [len(figures[group]) for group in GROUPS]
    size = (7.2, 0.27 * sum(heights) + 1.6)
    plot, axes = plt.subplots(
        len(GROUPS), figsize=size, layout="constrained", height_ratios=heights
    )
    for axis, (group, title) in zip(axes, GROUPS.items()):
        names = list(figures[group])
        values = [value(figures[group][name]) for name in names]
        bars = axis.barh(names, values, color=[colour(name) for name in names], height=0.72)
        axis.bar_label(bars, [f"{each:,.0f}" for each in values], padding=4, color=SOFT)
        axis.invert_yaxis()
        axis.set_title(title, loc="left")
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
        axis.set_xlim(0, max(values) * 1.12)
    path = DOCS / "_static" / "remote.svg"
    title = "Rates and first batches of clients alone, streamplug and other libraries"
    plot.savefig(path, metadata={"Date": None, "Creator": None, "Title": title})
    text = path.read_text().replace("'DejaVu Sans'", "system-ui, sans-serif")
    path.write_text("\n".join(line.rstrip() for line in text.split("\n")))


def table(figures: Figures) -> str:
    rows = [
        "| What | Who | New process | First time | Later | CPU | Best rate |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for group, members in figures.items():
        for name, each in members.items():
            times = " | ".join(f"{each[t]:.3f} s" for t in ("cold", "first", "later", "processor"))
            rate = f"{each['MB/s']:,.0f} MB/s" if "MB/s" in each else ""
            rows.append(f"| {group} | {name} | {times} | {rate} |")
    return "\n".join(rows)


def main() -> None:
    found: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    with mpl.rc_context(STYLE):
        draw(found["figures"])
    before, rest = PAGE.read_text(encoding="utf-8").split("<!-- table -->\n")
    _, after = rest.split("<!-- end of table -->\n")
    text = f"{before}<!-- table -->\n{table(found['figures'])}\n<!-- end of table -->\n{after}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
