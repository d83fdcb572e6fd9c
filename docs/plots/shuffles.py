"""Draws the plots of docs/concepts/shuffles.md and fills in its table.

    python docs/plots/shuffles.py

It needs matplotlib and the plugin streamplug-mosaic, and always gives the same files.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from streamplug_simulate.measures import iter_reads, make_epoch, measure, shards_of, to_epoch_order

from streamplug.plugin import make
from streamplug.types import World

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "concepts" / "shuffles.md"
NAMES = ("none", "window", "global", "naive", "py1s", "py2s", "py1br", "py1e")
BLOCKS = ("window", "py1br", "py1e")
SHARD, SHARDS = 1024, 200  # whole global batches, so that nothing is read twice
STARTS = np.arange(SHARDS + 1) * SHARD
WORLD, BATCH = World(2, 4), 32
BLOCK = 16 * SHARD

INK, SOFT, CARD, EDGE = "#22313f", "#4a5a69", "#fbfcfd", "#d5dce3"
COLOURS = {
    "none": "#3a9d5d",
    "window": "#1769aa",
    "global": "#c2410c",
    "py1br": "#7b4fb0",
    "py1e": "#c77dd1",
}
MARKED = {20: "#1769aa", 110: "#c2410c", 160: "#3a9d5d"}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "streamplug",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": EDGE,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8edf1",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.axisbelow": True,
    "figure.facecolor": CARD,
    "axes.facecolor": CARD,
    "figure.dpi": 100,
    "savefig.dpi": 110,
}


def epoch(name: str, block: int = BLOCK):
    return make_epoch(
        STARTS, make("shuffle", name), WORLD, BATCH, canonical_nodes=2, block_size=block
    )


def measured(name: str, *, block: int = BLOCK, shards: int | None = None):
    limit = None if shards is None else shards * SHARD
    return measure(epoch(name, block), WORLD, STARTS, cache_limit=limit)


def save(figure: plt.Figure, name: str, title: str) -> None:
    path = DOCS / "_static" / f"shuffles-{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None, "Title": title})
    plt.close(figure)
    text = path.read_text().replace("'DejaVu Sans'", "system-ui, sans-serif")
    path.write_text("\n".join(line.rstrip() for line in text.split("\n")))


def picture(name: str) -> np.ndarray:
    """Return where in the epoch the samples of each shard come, those of three shards in colour."""
    ids = np.concatenate(
        [to_epoch_order(part).ravel() for _, part in iter_reads(epoch(name), WORLD)]
    )
    cells = shards_of(ids, STARTS) * SHARDS + np.arange(len(ids)) // SHARD
    counts = np.bincount(cells, minlength=SHARDS**2).reshape(SHARDS, SHARDS)
    share = np.ceil(np.minimum(counts / SHARD * 12, 1) ** 0.5 * 8) / 8  # few levels, small files
    image = np.zeros((SHARDS, SHARDS, 4))
    image[..., :3], image[..., 3] = mpl.colors.to_rgb("#33475b"), share
    for shard, colour in MARKED.items():
        here = slice(shard - 1, shard + 2)  # three rows for one
        image[here, :, :3] = mpl.colors.to_rgb(colour)
        image[here, :, 3] = counts[shard] > 0
    return image


def orders() -> None:
    """Where the samples of an epoch come from."""
    figure, axes = plt.subplots(
        2, 4, figsize=(9.2, 5.2), sharex=True, sharey=True, layout="constrained"
    )
    end = SHARDS * SHARD / 1000
    for axis, name in zip(axes.flat, NAMES):
        axis.imshow(
            picture(name),
            extent=(0, end, 0, end),
            origin="lower",
            aspect="auto",
            interpolation="none",
            zorder=2,
        )
        axis.set_title(name)
        axis.set_xticks([0, 100, 200])
        axis.set_yticks([0, 100, 200])
    figure.supxlabel("position in the epoch (thousand samples)", fontsize=10, color=SOFT)
    figure.supylabel("place in the data set (thousand samples)", fontsize=10, color=SOFT)
    save(figure, "orders", "Where the samples of an epoch come from, for each shuffle")


def caches() -> None:
    """What a node downloads, by the size of its cache."""
    limits = np.unique(np.geomspace(1, 200, 30).astype(int))
    figure, axis = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for names in (
        ("global", "naive"),
        ("window",),
        ("py1br",),
        ("py1e",),
        ("none", "py1s", "py2s"),
    ):
        found = [measured(names[0], shards=int(limit)) for limit in limits]
        percent = [np.mean(each.downloads) / SHARDS * 100 for each in found]
        style = {"c": COLOURS[names[0]], "lw": 2, "label": ", ".join(names)}
        axis.plot(limits / SHARDS * 100, percent, **style)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(
        [0.5, 1, 2, 5, 10, 20, 50, 100], ["0.5", "1", "2", "5", "10", "20", "50", "100"]
    )
    axis.set_yticks([50, 100, 1000, 10_000], ["50", "100", "1,000", "10,000"])
    axis.minorticks_off()
    axis.set_xlabel("cache of a node (% of the data set)")
    axis.set_ylabel("downloads of a node per epoch (% of the data set)")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(0, 0.4))
    save(figure, "cache", "What a node downloads in an epoch, by the size of its cache")


def least_cache(name: str, block: int) -> int:
    """Return the smallest cache, in shards, with which each shard is downloaded once."""
    low, high = 1, SHARDS
    once = measured(name, block=block).downloads
    while low < high:
        middle = (low + high) // 2
        if measured(name, block=block, shards=middle).downloads == once:
            high = middle
        else:
            low = middle + 1
    return low


def sizes() -> None:
    """What the size of a block does."""
    blocks = [1, 2, 4, 8, 16, 32, 64]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    for name in BLOCKS:
        found = [measured(name, block=block * SHARD) for block in blocks]
        style = {"c": COLOURS[name], "lw": 2, "marker": "o", "ms": 4.5, "label": name}
        left.plot(blocks, [each.shards_per_node for each in found], **style)
        right.plot(blocks, [least_cache(name, block * SHARD) for block in blocks], **style)
    left.set_title("how well a batch is mixed")
    left.set_ylabel("distinct shards among the 128\nsamples of a node's batch")
    right.set_title("what it takes")
    right.set_ylabel("least cache of a node with which it\ndownloads each shard once (shards)")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks(blocks, [str(block) for block in blocks])
        axis.set_xlabel("block size (shards)")
        axis.set_ylim(bottom=0)
    left.legend(frameon=False)
    save(figure, "blocks", "What the size of a block does")


def table() -> str:
    rows = [
        (
            "| Shuffle | Displacement | Same shard | Shards per batch | Shards per node's batch "
            "| Downloads | Downloads, small cache |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in NAMES:
        free, tight = measured(name), measured(name, shards=SHARDS // 10)
        displacement = free.displacement / STARTS[-1] * 100
        rows.append(
            f"| `{name}` | {displacement:.0f} % | {free.same_shard * 100:.0f} % "
            f"| {free.shards_per_batch:.1f} | {free.shards_per_node:.1f} "
            f"| {np.mean(free.downloads):,.0f} | {np.mean(tight.downloads):,.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    with mpl.rc_context(STYLE):
        orders()
        caches()
        sizes()
    before, rest = PAGE.read_text(encoding="utf-8").split("<!-- table -->\n")
    _, after = rest.split("<!-- end of table -->\n")
    text = f"{before}<!-- table -->\n{table()}\n<!-- end of table -->\n{after}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
