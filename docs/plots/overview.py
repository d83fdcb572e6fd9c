"""Draws docs/_static/overview.svg, the picture of the README, and fills in its table on the page of speed.

    python tests/benchmarks/bench_landing.py --json landing.json
    python docs/plots/overview.py landing.json

It needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from read import DOCS, OURS, PAGE, PEERS, STYLE, between, machine

OURS_WITH_PILLOW = "#7fa9cc"
# matplotlib sets colors in style attributes.
DARK = """
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 !important }
[style*="fill: #fbfcfd"] { fill: #161c23 !important }
}"""
PATH = DOCS / "_static" / "overview.svg"
TITLE = "What streamplug and other libraries read in a second on two cores"

Row = dict[str, Any]


def colour(library: str) -> str:
    if not library.startswith("streamplug"):
        return PEERS
    return OURS if library == "streamplug" else OURS_WITH_PILLOW


def rate(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.1f}M"
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:,.0f}"


def draw(rows: list[Row]) -> None:
    """Draw the first row on the left, and the others below each other on the right."""
    heights = [len(row["sides"]) + 1.2 for row in rows[1:]]
    with mpl.rc_context(STYLE | {"axes.titleweight": "normal"}):
        plot = plt.figure(figsize=(8.4, 0.22 * sum(heights) + 0.3), layout="constrained")
        left, right = plot.subfigures(1, 2)
        axes = [left.subplots(), *right.subplots(len(heights), height_ratios=heights)]
        for axis, row in zip(axes, rows):
            sides = sorted(row["sides"].items(), key=lambda side: -side[1]["rate"])
            names, values = [name for name, _ in sides], [side["rate"] for _, side in sides]
            colours = [colour(name) for name in names]
            bars = axis.barh(names, values, color=colours, height=0.72)
            axis.bar_label(bars, [rate(value) for value in values], padding=4, fontsize=9)
            axis.invert_yaxis()
            axis.set_title(f"{row['title']} ({row['unit']})", loc="left", fontsize=9, x=0)
            axis.tick_params(axis="y", labelsize=9)
            axis.set_xticks([])
            axis.spines["bottom"].set_visible(False)
            axis.set_xlim(0, max(values) * 1.25)
        plot.savefig(PATH, metadata={"Date": None, "Creator": None, "Title": TITLE})
    text = PATH.read_text(encoding="utf-8").replace("'DejaVu Sans'", "system-ui, sans-serif")
    text = text.replace("</style>", f"{DARK}</style>", 1)
    PATH.write_text("\n".join(line.rstrip() for line in text.split("\n")), encoding="utf-8")


def table(rows: list[Row]) -> str:
    lines = [
        "| | Library | Per second | First batch | Memory | Fastest |",
        "| --- | --- | --: | --: | --: | --- |",
    ]
    for row in rows:
        title = row["title"]
        for library, side in row["sides"].items():
            figures = f"{side['rate']:,.0f} | {side['first_batch_ms']:,.0f} ms"
            figures += f" | {side['memory_mb']:,.0f} MB | {side['way']}"
            lines.append(f"| {title} | {library} | {figures} |")
            title = ""
    return "\n".join(lines)


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    rows = [row for row in found["rows"].values() if row["sides"]]
    draw(rows)
    server = next((row["server"] for row in rows if row["server"]), None)
    notes = f"{found['date']}; the server was {server}. {machine(found)}"
    text = between(PAGE.read_text(encoding="utf-8"), "landing", f"{table(rows)}\n\n{notes}")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
