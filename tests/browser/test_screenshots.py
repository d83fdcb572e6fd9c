"""The screenshots of the documentation, taken again: the same text, and about the same pixels."""

from __future__ import annotations

import io
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
SCREENSHOTS = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/plots/screenshots.py")))
AGAIN = "take it again: python docs/plots/screenshots.py --pages"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("screens")
    SCREENSHOTS.write_flowers(folder / "flowers")
    return folder


@pytest.mark.parametrize("name", ["inspect-page", "simulate-page"])
def test_pages_look_as_in_the_documentation(folder, chromium, name):
    assert name in SCREENSHOTS.PAGES
    page = SCREENSHOTS.write_page(name, folder)
    for scheme in ("light", "dark"):
        shown = Image.open(SCREENSHOTS.FOLDER / f"{name}-{scheme}.png")
        taken = Image.open(io.BytesIO(SCREENSHOTS.page_png(chromium, page, scheme)))
        assert shown.text["Description"] == taken.text["Description"], AGAIN
        assert shown.size == taken.size
        # Fonts differ between machines, so text is not compared by its pixels.
        small = [np.asarray(i.convert("RGB").reduce(8), float) for i in (shown, taken)]
        assert np.abs(small[0] - small[1]).mean() < 6, AGAIN
