"""The pictures of terminals in the documentation show what the commands print."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SCREENSHOTS = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/plots/screenshots.py")))


@pytest.fixture
def folder():
    """A directory whose name is short, since long ones are wrapped."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_terminals_show_what_commands_print(folder):
    SCREENSHOTS.write_flowers(folder / "flowers")
    assert {"inspect", "simulate"} == {*SCREENSHOTS.TERMINALS}
    for name, command in SCREENSHOTS.TERMINALS.items():
        shown = (SCREENSHOTS.FOLDER / f"{name}.svg").read_text("utf-8")
        assert SCREENSHOTS.terminal_svg(name, command, folder) == shown, (
            "take it again: python docs/plots/screenshots.py"
        )


def test_every_screenshot_is_in_a_page():
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    for path in SCREENSHOTS.FOLDER.iterdir():
        assert any(f"screenshots/{path.name}" in page for page in pages), path.name
