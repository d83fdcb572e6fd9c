"""Draws docs/_static/device.svg and writes the tables of docs/howto/devices.md.

    python tests/benchmarks/bench_device.py --json docs/plots/device.json
    python docs/plots/device.py

`tox -c tests -e gpu` runs both. Needs matplotlib.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "howto" / "devices.md"
MODELS = {"gpt": "GPT", "resnet": "ResNet-50"}
WAYS = {
    "bare": ("bare copy", "#94a3b8"),
    "pinned": ("from pinned tensors", "#1769aa"),
    "staged": ("from other tensors", "#d98032"),
}


def draw(copies: list[dict[str, float]], out: Path) -> None:
    mpl.rcParams.update(
        {"svg.hashsalt": "device", "font.size": 9, "axes.spines.top": False, "svg.fonttype": "none"}
        | {"axes.spines.right": False, "font.family": "sans-serif", "axes.axisbelow": True}
    )
    figure, axes = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
    for number, (way, (name, color)) in enumerate(WAYS.items()):
        places = [size + 0.27 * (number - 1) for size in range(len(copies))]
        axes.bar(places, [row[way] / 1e9 for row in copies], 0.25, color=color, label=name)
    axes.set_xticks(range(len(copies)), [size_text(row["bytes"]) for row in copies])
    axes.set(xlabel="bytes of a batch", ylabel="GB/s to the device")
    figure.legend(loc="outside upper center", ncols=len(WAYS), frameon=False)
    figure.savefig(out, metadata={"Date": None})


def size_text(size: float) -> str:
    return f"{size / 2**20:g} MiB"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def steps_table(steps: dict[str, dict[str, float]]) -> str:
    rows = [
        [
            MODELS[model],
            f"{row['batch']:,}",
            f"{1e3 * row['seconds without a loader']:.1f}",
            f"{1e3 * row['seconds']:.1f}",
            f"{1e3 * row['seconds in next']:.1f}",
            f"{100 * row['waiting']:.1f} %",
        ]
        for model, row in steps.items()
    ]
    head = ["Model", "Batch", "ms per step, batch on the device", "with the loader", "in `next`"]
    return table([*head, "Waiting"], rows)


def copies_table(copies: list[dict[str, float]]) -> str:
    rows = [
        [
            size_text(row["bytes"]),
            f"{row['bare'] / 1e9:.1f} GB/s",
            *(f"{100 * row[way] / row['bare']:.0f} %" for way in ("pinned", "staged")),
        ]
        for row in copies
    ]
    return table(["Batch", "Bare copy", "From pinned tensors", "From other tensors"], rows)


def between(text: str, mark: str, new: str) -> str:
    """Put something between two comments of a page."""
    head, _, rest = text.partition(f"<!-- {mark} -->\n")
    _, _, tail = rest.partition(f"<!-- end of {mark} -->")
    return f"{head}<!-- {mark} -->\n{new}\n<!-- end of {mark} -->{tail}"


def page_text(figures: dict[str, Any]) -> str:
    machine = f"{figures['device']}, torch {figures['torch']}, {figures['workers']} workers"
    tables = f"{steps_table(figures['steps'])}\n\n{copies_table(figures['copies'])}"
    return f"On {machine}:\n\n{tables}\n\n![Bandwidth to the device](../_static/device.svg)"


def main() -> None:
    figures = json.loads((DOCS / "plots" / "device.json").read_text())
    draw(figures["copies"], DOCS / "_static" / "device.svg")
    PAGE.write_text(between(PAGE.read_text(), "figures", page_text(figures)))


if __name__ == "__main__":
    main()
