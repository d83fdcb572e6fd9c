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


def read_rates(kind: str, what: str) -> dict[str, float]:
    """Return samples per second by library in the later epochs, or in the first where there is no other."""
    section = PAGE.read_text(encoding="utf-8").partition(f"**{KINDS[kind]}**")[2].partition("**")[0]
    rates: dict[str, float] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] == [WHAT[what]] and cells[1] != "streamplug, torch's loader":
            library = cells[1].partition(",")[0]
            rates[library] = float((cells[3] or cells[2]).replace(",", ""))
    return rates


def main() -> None:
    with mpl.rc_context(STYLE | {"axes.titleweight": "normal"}):
        plot, axes = plt.subplots(1, len(SHOWN), figsize=(8.4, 2.1), layout="constrained")
        for axis, kind in zip(axes, SHOWN):
            rates = read_rates(kind, "loader")
            values = np.array([rates[library] for library in LIBRARIES])
            bars = axis.barh(list(LIBRARIES), values, color=list(LIBRARIES.values()), height=0.7)
            axis.bar_label(bars, [f"{value / 1000:,.0f}k/s" for value in values], padding=4)
            axis.invert_yaxis()
            axis.set_title(KINDS[kind], loc="left")
            axis.set_xticks([])
            axis.spines["bottom"].set_visible(False)
            axis.set_xlim(0, values.max() * 1.35)
            if axis is not axes[0]:
                axis.set_yticks([])
        title = "Samples per second of a loader with two workers, from local shards"
        plot.savefig(PATH, metadata={"Date": None, "Creator": None, "Title": title})
    text = PATH.read_text(encoding="utf-8").replace("'DejaVu Sans'", "system-ui, sans-serif")
    text = text.replace("</style>", f"{DARK}</style>", 1)
    PATH.write_text("\n".join(line.rstrip() for line in text.split("\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
