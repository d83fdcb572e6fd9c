"""Draws the diagrams of docs/concepts: plan.svg, resume.svg, bytes.svg and ahead.svg.

    python docs/plots/diagrams.py

It always gives the same files, into docs/_static or the folder that is named. The orders in them are
real ones. They are narrow, so that they can be read on a telephone, and have colours for dark screens.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from streamplug_simulate.measures import make_epoch

from streamplug.plugin import make
from streamplug.types import World

STATIC = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "_static"
WIDTH = 400
STARTS = np.array([0, 5, 9, 12])  # three shards of 5, 4 and 3 samples
GLOBAL, STEPS = 4, 3
LEFT, CELL, GAP = 88, 23, 12

STYLE = """
text{font:12px system-ui,sans-serif;fill:#22313f}
.h{font-weight:600}.s{font-size:11px;fill:#4a5a69}.n{font-size:11.5px;text-anchor:middle;fill:#22313f}
.c{text-anchor:middle}.e{text-anchor:end}.card{fill:#fbfcfd;stroke:#d5dce3}.box{fill:#fff;stroke:#33475b}
.part{fill:#dcebfa;stroke:#33475b}.off{fill:none;stroke:#8796a5;stroke-dasharray:3 3}
.s0{fill:#7fb3e6}.s1{fill:#f2b266}.s2{fill:#92cf9a}.s3{fill:#d9a6d9}.s0,.s1,.s2,.s3{stroke:#33475b}
.line{stroke:#5b6b7a;stroke-width:1.5;fill:none}.tip{fill:#5b6b7a}.mark{stroke:#c2410c;stroke-width:2;fill:none}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.s{fill:#aab7c4}.card{fill:#161c23;stroke:#33404d}.box{fill:#222b35;stroke:#8aa0b5}
.part{fill:#1d3a57;stroke:#8aa0b5}.line{stroke:#9fb0c0}.tip{fill:#9fb0c0}.mark{stroke:#ff8a50}
}
"""


class Drawing:
    """An SVG file that grows downwards.

    Args:
        name: Of the file.
        title: What it shows, for those who cannot see it.
    """

    def __init__(self, name: str, title: str) -> None:
        self.name, self.title = name, title
        self.parts: list[str] = []
        self.y = 14

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def box(self, x: float, y: float, wide: float, high: float, kind: str) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="4"/>'
        )

    def cell(self, x: float, y: float, text: object, kind: str) -> None:
        self.box(x, y, CELL - 3, 22, kind)
        self.text(x + (CELL - 3) / 2, y + 15.5, str(text), "n")

    def line(self, path: str, kind: str = "line", *, tip: bool = False) -> None:
        end = ' marker-end="url(#tip)"' if tip else ""
        self.parts.append(f'<path class="{kind}" d="{path}"{end}/>')

    def arrow(self, says: str = "") -> None:
        """Point from what is above to what follows, and say what happens there."""
        self.line(f"M{LEFT + 10} {self.y} v17", tip=True)
        self.text(LEFT + 22, self.y + 13, says, "s")
        self.y += 24

    def save(self) -> None:
        high = self.y + 10
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" width="520" '
            f'height="{520 * high // WIDTH}" role="img" aria-labelledby="t">\n<title id="t">'
            f"{escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
            f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{high - 1}" rx="10"/>\n'
        )
        (STATIC / self.name).write_text(head + "\n".join(self.parts) + "\n</svg>\n")


def colour(sample: int) -> str:
    return f"s{int(np.searchsorted(STARTS, sample, side='right')) - 1}"


def at(place: int) -> int:
    """Return where the sample at a position of the epoch is drawn."""
    return LEFT + place * CELL + place // GLOBAL * GAP


def epoch_of(ranks: int):
    return make_epoch(
        STARTS, make("shuffle", "window"), World(1, ranks), GLOBAL // ranks, canonical_nodes=2
    )


def dealt(ranks: int, step: int) -> list[list[int]]:
    """Return what each rank reads at a step."""
    epoch = epoch_of(ranks)
    return [
        epoch.ids(World(1, ranks, rank=rank), np.array([step]))[0].tolist() for rank in range(ranks)
    ]


def in_order() -> list[int]:
    return [sample for step in range(STEPS) for sample in dealt(1, step)[0]]


def draw_epoch(drawing: Drawing) -> None:
    """Draw the order of the epoch, and its steps."""
    drawing.text(12, drawing.y + 15, "the epoch", "h")
    for place, sample in enumerate(in_order()):
        drawing.cell(at(place), drawing.y, sample, colour(sample))
    for step in range(STEPS):
        drawing.text(at(step * GLOBAL) + 45, drawing.y + 37, f"step {step}", "s c")
    drawing.y += 46


def draw_ranks(drawing: Drawing, ranks: int, steps: range, says: str) -> None:
    """Draw what each rank reads at some steps, in a line for each rank."""
    drawing.text(12, drawing.y + 11, f"{ranks} rank{'s' if ranks > 1 else ''}", "h")
    drawing.text(12, drawing.y + 25, says, "s")
    order = in_order()
    read = [
        (rank, sample)
        for step in steps
        for rank, ids in enumerate(dealt(ranks, step))
        for sample in ids
    ]
    for rank, sample in read:
        drawing.cell(at(order.index(sample)), drawing.y + rank * 26, sample, colour(sample))
    if ranks > 1:
        for rank in range(ranks):
            drawing.text(74, drawing.y + rank * 26 + 15, str(rank), "s")
    drawing.y += ranks * 26 + 10


def plan() -> None:
    drawing = Drawing(
        "plan.svg", "From shards to canonical nodes, to one order, to what each rank reads"
    )
    drawing.text(12, drawing.y + 15, "3 shards", "h")
    for sample in range(12):
        left = LEFT + sample * CELL + int(colour(sample)[1]) * GAP
        drawing.cell(left, drawing.y, sample, colour(sample))
    drawing.y += 28
    drawing.arrow("shuffle: shards dealt to canonical nodes, samples mixed")
    for canonical_node in range(2):
        drawing.text(12, drawing.y + 15, f"node {canonical_node}", "h")
        for place, sample in enumerate(in_order()[canonical_node::2]):
            drawing.cell(LEFT + place * CELL, drawing.y, sample, colour(sample))
        drawing.y += 26
    drawing.arrow("interleaved: a sample of each canonical node in turn")
    draw_epoch(drawing)
    drawing.arrow("partition: which of them each rank reads")
    for ranks in (1, 2, 4):
        draw_ranks(drawing, ranks, range(STEPS), f"{GLOBAL // ranks} a step")
    drawing.save()


def resume() -> None:
    drawing = Drawing(
        "resume.svg",
        "Two ranks stop after step 0; four ranks load the state and go on with step 1",
    )
    top = drawing.y - 4
    draw_epoch(drawing)
    drawing.y += 8
    draw_ranks(drawing, 2, range(1), "killed")
    draw_ranks(drawing, 4, range(1, STEPS), "go on")
    drawing.line(f"M{at(GLOBAL) - 8} {top} V{drawing.y}", "mark")
    drawing.text(
        12, drawing.y + 16, "The state: epoch 0, 4 samples used, and what makes the order", "s"
    )
    drawing.text(
        12, drawing.y + 31, "this order. Nothing is read again, nothing is skipped through.", "s"
    )
    drawing.y += 38
    drawing.save()


def bytes_() -> None:
    drawing = Drawing("bytes.svg", "From a file far away to values: who does what, and checks what")
    steps = (
        ("remote file", "s3://bucket/set/shard.00017.mds.zstd", ""),
        ("Storage", "downloads; plugin: s3, gs, … built in: file, http",
         "tried again while errors may pass; size and digest checked"),
        ("stored file", "under a temporary name in local=", ""),
        ("Compression", "unpacks; plugin: zstd, lz4, … built in: gz, bz2, xz",
         "never more bytes than the index says; size, digest"),
        ("raw file", "shard.00017.mds: its final name, so it is whole", ""),
        ("Format", "finds samples; built in: mds; plugin: parquet, …",
         "offsets and counts must agree with the index"),
        ("rows", "mapped, not copied", ""),
        ("Encoding", "decodes values; built in: str, ndarray, … plugin: jpeg",
         "only columns that were asked for; errors name the sample"),
        ("sample, or batch of columns", "to the loader", ""),
    )  # fmt: skip
    for number, (name, does, checks) in enumerate(steps):
        left = 16 if checks else 48
        high = 60 if checks else 42
        drawing.box(left, drawing.y, WIDTH - 2 * left, high, "part" if checks else "box")
        drawing.text(WIDTH / 2, drawing.y + 17, name, "h c")
        drawing.text(WIDTH / 2, drawing.y + 33, does, "s c")
        drawing.text(WIDTH / 2, drawing.y + 50, checks, "s c")
        drawing.y += high + 3
        if number < len(steps) - 1:
            drawing.line(f"M{WIDTH // 2} {drawing.y} v11", tip=True)
            drawing.y += 15
    drawing.save()


def ahead() -> None:
    drawing = Drawing(
        "ahead.svg",
        "Shards in the order in which they are needed: used, in use, ready, being fetched, to come",
    )
    drawing.text(12, drawing.y + 12, "Shards in the order in which the plan needs them", "h")
    drawing.y += 26
    kinds = ["off"] * 2 + ["s2"] * 2 + ["s0"] * 2 + ["s2"] * 3 + ["s1"] * 3 + ["off"] * 3
    for place, kind in enumerate(kinds):
        drawing.box(16 + place * 24.6, drawing.y, 20, 30, kind)
    here = 16 + 6 * 24.6 - 2.3
    drawing.line(f"M{here:g} {drawing.y - 6} v42", "mark")
    end = 16 + 12 * 24.6 - 4
    drawing.y += 46
    drawing.line(f"M{here:g} {drawing.y} v6 H{end:g} v-6")
    drawing.text((here + end) / 2, drawing.y + 20, "how far ahead: adapts, or", "s c")
    drawing.text((here + end) / 2, drawing.y + 34, "predownload=", "s c")
    drawing.text(here - 6, drawing.y + 6, "the loop", "s e")
    drawing.text(here - 6, drawing.y + 20, "is here", "s e")
    drawing.y += 50
    for kind, says in (
        ("s0", "being decoded: stays open until its batches are done"),
        ("s2", "in the cache: whole, checked, shared by all processes"),
        ("s1", "being fetched: up to eight at once, the most urgent first"),
        ("off", "far only: not asked for yet, or evicted by cache_limit="),
    ):
        drawing.box(16, drawing.y, 16, 16, kind)
        drawing.text(40, drawing.y + 12, says, "s")
        drawing.y += 22
    drawing.save()


if __name__ == "__main__":
    plan()
    resume()
    bytes_()
    ahead()
