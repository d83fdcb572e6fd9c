"""Draws docs/_static/faults.svg and writes the tables of docs/concepts/faults.md and reliability.md.

    python docs/plots/faults.py

Takes the figures from docs/plots/faults.json, where `tox -e faults` puts them. Needs matplotlib.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "concepts" / "faults.md"
RELIABILITY = DOCS / "concepts" / "reliability.md"
KINDS = {
    "latency": "#94a3b8",
    "reset": "#0ea5e9",
    "reset-middle": "#0369a1",
    "truncated": "#16a34a",
    "short": "#4ade80",
    "flipped": "#dc2626",
    "stall": "#9333ea",
    "stall-middle": "#c084fc",
    "500": "#f59e0b",
    "503": "#d97706",
    "503-after": "#b45309",
    "429": "#fde047",
    "429-after": "#facc15",
}


def draw(runs: list[dict[str, Any]], out: Path) -> None:
    mpl.rcParams.update(
        {"svg.hashsalt": "faults", "font.size": 9, "axes.spines.top": False, "svg.fonttype": "none"}
        | {"axes.spines.right": False, "font.family": "sans-serif", "axes.axisbelow": True}
    )
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    names = [f"{run['name']}, {run['rate']:.0%}" for run in runs]
    before = [0.0] * len(runs)
    for kind, color in KINDS.items():
        shares = [100 * run["faults"].get(kind, 0) / run["requests"] for run in runs]
        axes.barh(names, shares, left=before, color=color, label=kind)
        before = [a + b for a, b in zip(before, shares)]
    for name, end, run in zip(names, before, runs):
        axes.text(end + 0.4, name, f"{run['requests']:,} requests", va="center")
    axes.invert_yaxis()
    axes.set(xlabel="requests that failed or were late, %", xlim=(0, 1.25 * max(before)))
    axes.legend(frameon=False, ncols=2, fontsize=7, loc="lower right")
    figure.savefig(out, metadata={"Date": None})


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def epochs_table(runs: list[dict[str, Any]]) -> str:
    head = ["Campaign", "Epochs", "Shards", "Requests", "Failed or late", "Retries"]
    rows = [
        [
            f"{run['name']}, {run['rate']:.0%}",
            *(f"{run[key]:,}" for key in ("epochs", "shards", "requests")),
            f"{sum(run['faults'].values()):,}",
            *(f"{run[key]:,}" for key in ("retries", "samples", "errors")),
        ]
        for run in runs
    ]
    return table([*head, "Samples", "Errors"], rows)


def cut_off(runs: list[dict[str, Any]]) -> str:
    """Say which runs were ended before their time; what they read until then was checked all the same."""
    early = [run for run in runs if run["epochs"] < run.get("planned", 0)]
    return "".join(
        f"\n\nThe run of {run['name']}, {run['rate']:.0%} stopped after {run['epochs']} of its "
        f"{run['planned']} epochs."
        for run in early
    )


def kills_table(kills: dict[str, Any]) -> str:
    order = ("download", "check", "decompression", "eviction", "admission", "something else")
    rows = [
        [what, f"{kills['aimed'].get(what, 0):,}", f"{kills['hit'].get(what, 0):,}"]
        for what in order
        if what in kills["hit"]
    ]
    rows.append(["at any time", f"{kills['aimed']['any']:,}", ""])
    return table(["Killed during", "Targeted", "Hit"], rows)


def losses_text(losses: dict[str, dict[str, int]]) -> str:
    totals = {key: sum(found[key] for found in losses.values()) for key in ("tried", "states")}
    return (
        f"{len(losses)} operations were tried in {totals['tried']:,} states, {totals['states']:,} of them "
        "distinct. In each, the data\nset was complete, unchanged or reported as absent; after the repeated "
        "call, it was complete. Caches returned the\ncorrect samples immediately."
    )


def between(text: str, mark: str, new: str) -> str:
    """Put something between two comments of a page."""
    head, _, rest = text.partition(f"<!-- {mark} -->\n")
    _, _, tail = rest.partition(f"<!-- end of {mark} -->")
    return f"{head}<!-- {mark} -->\n{new}\n<!-- end of {mark} -->{tail}"


def main() -> None:
    figures = json.loads((DOCS / "plots" / "faults.json").read_text())
    runs = sorted(
        figures["epochs"].values(), key=lambda run: (run["name"] != "shards", run["rate"])
    )
    draw(runs, DOCS / "_static" / "faults.svg")
    page = between(PAGE.read_text(), "epochs", epochs_table(runs) + cut_off(runs))
    PAGE.write_text(between(page, "kills", kills_table(figures["kills"])))
    losses = losses_text(figures["power losses"])
    RELIABILITY.write_text(between(RELIABILITY.read_text(), "losses", losses))


if __name__ == "__main__":
    main()
