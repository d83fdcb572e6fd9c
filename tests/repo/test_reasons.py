"""Whatever is kept from a tool has its reason beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "src", *sorted(ROOT.glob("plugins/streamplug-*/src"))]
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
WITHOUT = {
    "an error of mypy": re.compile(r"# type: ignore(?!\[[\w, -]+\]  # \w)"),
    "any exception": re.compile(r"# noqa: [\w, ]*BLE001(?![\w, ]* - \w)"),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_nothing_is_kept_quiet_without_a_reason(what):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WITHOUT[what].search(line)
    ]
    assert found == []
