"""Draws docs/_static/overview.svg, the picture of the README, from the tables of docs/reference/speed.md.

    python docs/plots/overview.py

It needs matplotlib.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from read import KINDS, OURS, PAGE, STYLE, WHAT

LIBRARIES = {"streamplug": OURS, "litdata": "#d98032", "mosaicml-streaming": "#e8b98b"}
SHOWN = ("tokens", "small", "jpeg")
# matplotlib sets colors in style attributes.
DARK = """
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 !important }
[style*="fill: #fbfcfd"] { fill: #161c23 !important }
}"""
PATH = PAGE.parents[1] / "_static" / "overview.svg"


def read_rates(kind: str, what: str) -> dict[str, tuple[float, str]]:
    """Return samples per second by library in its faster epoch, and which that is."""
    section = PAGE.read_text(encoding="utf-8").partition(f"**{KINDS[kind]}**")[2].partition("**")[0]
    rates: dict[str, tuple[float, str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] == [WHAT[what]] and cells[1] != "streamplug, torch's loader":
            library = cells[1].partition(",")[0]
            first, later = (float(cell.replace(",", "") or 0) for cell in cells[2:4])
            rates[library] = max((first, "first epoch"), (later, "later epochs"))
    return rates


def main() -> None:
    with mpl.rc_context(STYLE | {"axes.titleweight": "normal"}):
        plot, axes = plt.subplots(1, len(SHOWN), figsize=(8.4, 2.1), layout="constrained")
        for axis, kind in zip(axes, SHOWN):
            rates = read_rates(kind, "loader")
            values = np.array([rates[library][0] for library in LIBRARIES])
            bars = axis.barh(list(LIBRARIES), values, color=list(LIBRARIES.values()), height=0.7)
            labels = [
                f"{rate / 1000:,.0f}k/s, {epoch}" for rate, epoch in map(rates.get, LIBRARIES)
            ]
            axis.bar_label(bars, labels, padding=4, fontsize=8)
            axis.invert_yaxis()
            axis.set_title(KINDS[kind], loc="left")
            axis.set_xticks([])
            axis.spines["bottom"].set_visible(False)
            axis.set_xlim(0, values.max() * 1.9)
            if axis is not axes[0]:
                axis.set_yticks([])
        title = (
            "Samples per second of a loader with two workers in its faster epoch, from local shards"
        )
        plot.savefig(PATH, metadata={"Date": None, "Creator": None, "Title": title})
    text = PATH.read_text(encoding="utf-8").replace("'DejaVu Sans'", "system-ui, sans-serif")
    text = text.replace("</style>", f"{DARK}</style>", 1)
    PATH.write_text("\n".join(line.rstrip() for line in text.split("\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
