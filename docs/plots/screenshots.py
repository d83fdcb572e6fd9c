"""Takes the screenshots of docs/_static/screenshots: of a terminal as SVG, of pages in Chromium as PNG.

    python docs/plots/screenshots.py [--pages]

The pages need Playwright and Chromium, as in `tox -c tests -e browser`. Tests take all of them again and
compare: tests/repo/test_screenshots.py and tests/browser/test_screenshots.py.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rich.console import Console
from rich.text import Text

from streamplug import MDSWriter

FOLDER = Path(__file__).parents[1] / "_static" / "screenshots"
COLUMNS = 96
FLOWERS = {"daisy": (13, "white"), "poppy": (4, "red"), "iris": (3, "blue"), "lily": (6, "pink")}
COLORS = {
    "white": (250, 250, 240),
    "red": (214, 48, 39),
    "blue": (74, 92, 196),
    "pink": (240, 140, 170),
}
SIMULATE = (
    "simulate flowers --nodes 2 --batch-size 10 --shuffle py1e "
    "--block-size 80 --cache-limit 5mb --bandwidth 2mb --epochs 2"
)
TERMINALS = {"inspect": "inspect flowers --samples 3", "simulate": SIMULATE}
PAGES = {
    "inspect-page": "inspect flowers --samples 12 --html inspect-page.html",
    "simulate-page": f"{SIMULATE} --html simulate-page.html",
}
HEIGHTS = {"inspect-page": 2300, "simulate-page": 1300}
# The template of rich loads its font from another host.
TERMINAL = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def write_flowers(out: Path) -> None:
    """Write 600 pictures of flowers, the same bytes everywhere: PNG files that are not compressed."""
    rng = np.random.default_rng(7)
    columns = {"image": "png", "label": "str", "petals": "uint8", "caption": "str"}
    with MDSWriter(out=out, columns=columns, size_limit="1mb", hashes=["sha1"]) as writer:
        for _ in range(600):
            label = str(rng.choice(list(FLOWERS), p=[0.4, 0.3, 0.2, 0.1]))
            petals, color = FLOWERS[label]
            size = "large" if rng.random() < 0.3 else "small"
            stream = io.BytesIO()
            _draw(rng, petals, COLORS[color], 26 if size == "large" else 19).save(
                stream, "PNG", compress_level=0
            )
            caption = f"a {size} {label} with {petals} {color} petals"
            writer.write(
                {"image": stream.getvalue(), "label": label, "petals": petals, "caption": caption}
            )


def _draw(
    rng: np.random.Generator, petals: int, color: tuple[int, int, int], radius: float
) -> Image.Image:
    y, x = np.mgrid[:64, :64] - 31.5 + rng.uniform(-5, 5, (2, 1, 1))
    distance, angle = np.hypot(x, y), np.arctan2(y, x) + rng.uniform(0, 6)
    shape = radius * (0.55 + 0.45 * np.abs(np.cos(angle * petals / 2)))
    pixels = np.full((64, 64, 3), (58, 112, 62)) + rng.normal(0, 9, (64, 64, 1))
    pixels[distance < shape] = color
    pixels -= (distance < shape)[..., None] * np.cos(angle * petals)[..., None] * 14
    pixels[distance < radius / 3.5] = (236, 190, 52)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def run(command: str, folder: Path) -> str:
    """Return what a command of streamplug prints on a terminal with colors."""
    environment = {
        **os.environ,
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
    }
    environment.pop("NO_COLOR", None)
    printed = subprocess.run(
        [sys.executable, "-m", "streamplug", *shlex.split(command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    # The widths of tables depend on the name of the folder.
    return re.sub(r" +$", "", printed.replace(str(folder), "/data"), flags=re.MULTILINE)


def terminal_svg(name: str, command: str, folder: Path) -> str:
    """Return a picture of a terminal in which a command was run."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    console.print(Text("$ ", style="bold green") + Text(f"streamplug {command}"))
    console.print(Text.from_ansi(run(command, folder).rstrip()))
    return console.export_svg(title="", code_format=TERMINAL, unique_id=name)


def write_page(name: str, folder: Path) -> Path:
    """Write a page with a command, and return its path."""
    run(PAGES[name], folder)
    page = folder / f"{name}.html"
    page.write_text(page.read_text("utf-8").replace(str(folder), "/data"), "utf-8")
    return page


def page_png(browser: Any, page: Path, color_scheme: str) -> bytes:
    """Return a picture of the upper part of a page, 1,400 pixels wide, with the text of all of it inside."""
    context = browser.new_context(
        viewport={"width": 1400, "height": HEIGHTS[page.stem]}, color_scheme=color_scheme
    )
    try:
        window = context.new_page()
        window.goto(page.as_uri())
        taken = Image.open(io.BytesIO(window.screenshot(animations="disabled")))
        about = PngInfo()
        about.add_itxt("Description", window.inner_text("body"))
    finally:
        context.close()
    stream = io.BytesIO()
    taken.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
        stream, "PNG", optimize=True, pnginfo=about
    )
    return stream.getvalue()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_flowers(folder / "flowers")
        for name, command in TERMINALS.items():
            (FOLDER / f"{name}.svg").write_text(terminal_svg(name, command, folder), "utf-8")
        if "--pages" not in sys.argv:
            return
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            for name in PAGES:
                page = write_page(name, folder)
                for scheme in ("light", "dark"):
                    (FOLDER / f"{name}-{scheme}.png").write_bytes(page_png(browser, page, scheme))
            browser.close()


if __name__ == "__main__":
    main()
