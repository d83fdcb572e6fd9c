"""The pictures of terminals in the documentation show what the commands print."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def screens():
    spec = importlib.util.spec_from_file_location("screens", ROOT / "docs/plots/screens.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder():
    """A directory whose name is short, since long ones are wrapped."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_terminals_show_what_commands_print(screens, folder):
    screens.write_flowers(folder / "flowers")
    assert {"inspect", "simulate"} == {*screens.TERMINALS}
    for name, command in screens.TERMINALS.items():
        shown = (screens.SCREENS / f"{name}.svg").read_text("utf-8")
        assert screens.terminal_svg(name, command, folder) == shown, (
            "take it again: python docs/plots/screens.py"
        )


def test_every_screenshot_is_in_a_page(screens):
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    for path in screens.SCREENS.iterdir():
        assert any(f"screens/{path.name}" in page for page in pages), path.name
