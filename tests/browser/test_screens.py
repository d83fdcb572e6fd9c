"""The screenshots of the documentation, taken again: the same text, and about the same pixels."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
AGAIN = "take it again: python docs/plots/screens.py --pages"


@pytest.fixture(scope="module")
def screens():
    spec = importlib.util.spec_from_file_location("screens", ROOT / "docs/plots/screens.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(screens, tmp_path_factory):
    folder = tmp_path_factory.mktemp("screens")
    screens.write_flowers(folder / "flowers")
    return folder


@pytest.mark.parametrize("name", ["inspect-page", "simulate-page"])
def test_pages_look_as_in_the_documentation(screens, folder, chromium, name):
    assert name in screens.PAGES
    page = screens.write_page(name, folder)
    for scheme in ("light", "dark"):
        shown = Image.open(screens.SCREENS / f"{name}-{scheme}.png")
        taken = Image.open(io.BytesIO(screens.page_png(chromium, page, scheme)))
        assert shown.text["Description"] == taken.text["Description"], AGAIN
        assert shown.size == taken.size
        # Fonts differ between machines, so text is not compared by its pixels.
        small = [np.asarray(i.convert("RGB").reduce(8), float) for i in (shown, taken)]
        assert np.abs(small[0] - small[1]).mean() < 6, AGAIN
