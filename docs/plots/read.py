"""Draws docs/_static/read.svg and fills in the tables of docs/reference/speed.md.

    python tests/benchmarks/bench_read.py --json read.json
    python docs/plots/read.py read.json

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
KINDS = {
    "jpeg": "JPEGs of 12 kB, as bytes",
    "tokens": "2,048 tokens of uint16",
    "small": "An int, a float, a short str",
    "documents": "50 to 2,000 tokens of uint16",
    "table": "40 columns of float32",
}
WHAT = {
    "limit": "limit",
    "samples": "one by one",
    "batches": "batches of 256",
    "loader": "two workers",
    "access": "random access",
    "writing": "writing",
}
DRAWN = ("jpeg", "tokens", "small")
PEERS_OF_RATIOS = ("litdata", "mosaicml-streaming")

Figure = dict[str, Any]


def best(figures: list[Figure], one: Figure, library: str) -> Figure | None:
    """Return the fastest way of a library to do the same; for batches, its samples one by one count too."""
    ways = ("samples", "batches") if one["what"] in ("batches", "limit") else (one["what"],)
    found = [
        each
        for each in figures
        if each["kind"] == one["kind"]
        and each["what"] in ways
        and each["who"].startswith(library + ",")
    ]
    return max(found, key=lambda each: each["rate"], default=None)


def library_of(one: Figure) -> str:
    return one["who"].partition(",")[0]


def draw(figures: list[Figure]) -> None:
    groups = [
        (kind, what, shown)
        for kind in DRAWN
        for what in ("samples", "batches", "loader")
        if (shown := bars(figures, kind, what))
    ]
    heights = [len(shown) + 1.2 for _, _, shown in groups]
    size = (7.2, 0.25 * sum(heights) + 0.6)
    plot, axes = plt.subplots(
        len(groups), figsize=size, layout="constrained", height_ratios=heights
    )
    for axis, (kind, what, shown) in zip(axes, groups):
        values = [each["rate"] for each in shown]
        colours = [colour(each) for each in shown]
        drawn = axis.barh([each["who"] for each in shown], values, color=colours, height=0.72)
        axis.bar_label(drawn, [f"{value:,.0f}" for value in values], padding=4, color=SOFT)
        axis.invert_yaxis()
        axis.set_title(f"{KINDS[kind]}, {WHAT[what]} (samples/s)", loc="left")
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
        axis.set_xlim(0, max(values) * 1.2)
    path = DOCS / "_static" / "read.svg"
    title = "Samples per second from local shards: streamplug and other libraries"
    plot.savefig(path, metadata={"Date": None, "Creator": None, "Title": title})
    text = path.read_text().replace("'DejaVu Sans'", "system-ui, sans-serif")
    path.write_text("\n".join(line.rstrip() for line in text.split("\n")))


def bars(figures: list[Figure], kind: str, what: str) -> list[Figure]:
    """Return what is shown of one way to read a data set: each library's fastest, and the limits."""
    chosen: dict[str, Figure] = {}
    for one in figures:
        mine = one["what"] == what or (one["what"] == "limit" and what == "batches")
        if one["kind"] == kind and mine:
            name = one["who"] if one["what"] == "limit" else library_of(one)
            if name not in chosen or chosen[name]["rate"] < one["rate"]:
                chosen[name] = one
    return sorted(chosen.values(), key=lambda each: -each["rate"])


def colour(one: Figure) -> str:
    if one["what"] == "limit":
        return BARE
    return OURS if library_of(one) == "streamplug" else PEERS


def table(figures: list[Figure], kind: str) -> str:
    heads = ["", "", "First epoch", "Later", "Least to most", "CPU s per million", "First sample"]
    heads += ["RSS, own (MB)", *(f"× {name}" for name in PEERS_OF_RATIOS)]
    lines = [heads, ["---", "---", *["--:"] * (len(heads) - 2)]]
    lines += [cells(figures, one) for one in figures if one["kind"] == kind]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(figures: list[Figure], one: Figure) -> list[str]:
    writing = one["what"] == "writing"
    return [
        WHAT[one["what"]],
        one["who"],
        "" if writing else f"{one['first']:,.0f}",
        f"{one['rate']:,.0f}" if writing or one["second"] else "",
        f"{one['least']:,.0f} to {one['most']:,.0f}",
        f"{one['processor']:,.2f}",
        "" if writing else f"{one['wait'] * 1000:,.0f} ms",
        f"{one['rss']:,.0f}, {one['anonymous']:,.0f}",
        *(ratio(one, best(figures, one, name)) for name in PEERS_OF_RATIOS),
    ]


def ratio(one: Figure, other: Figure | None) -> str:
    """Return how many times as fast one is, and in brackets by the time of processors."""
    if other is None or other["who"] == one["who"]:
        return ""
    rate, busy = one["rate"] / other["rate"], other["processor"] / one["processor"]
    return f"{figures_of(rate)} ({figures_of(busy)})"


def figures_of(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def machine(found: dict[str, Any]) -> str:
    where = found["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    left = [f"- left out: {who}: {why}" for who, why in found["left out"].items()]
    text = (
        f"Measured in {found['seconds']:,.0f} s on {where['cores']} cores ({where['cpu']}), Linux "
        f"{where['kernel']}, load {where['load']:.1f} at the beginning, Python {where['python']}; {versions}."
    )
    return "\n".join([text, *([""] if left else []), *left])


def between(text: str, mark: str, new: str) -> str:
    """Put something between two comments of a page.

    Raises:
        ValueError: If the page does not have them.
    """
    head, _, rest = text.partition(f"<!-- {mark} -->\n")
    _, found, tail = rest.partition(f"<!-- end of {mark} -->")
    if not found:
        raise ValueError(f"{PAGE} has no {mark}")
    return f"{head}<!-- {mark} -->\n{new}\n<!-- end of {mark} -->{tail}"


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    figures = found["figures"]
    with mpl.rc_context(STYLE):
        draw(figures)
    kinds = [kind for kind in KINDS if any(one["kind"] == kind for one in figures)]
    parts = [
        f"**{KINDS[kind]}**, {sizes(figures, kind):,} samples\n\n{table(figures, kind)}"
        for kind in kinds
    ]
    text = between(PAGE.read_text(encoding="utf-8"), "local", "\n\n".join([*parts, machine(found)]))
    PAGE.write_text(text, encoding="utf-8")


def sizes(figures: list[Figure], kind: str) -> int:
    return next(one["samples"] for one in figures if one["kind"] == kind)


if __name__ == "__main__":
    main()
