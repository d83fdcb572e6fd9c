"""In the guides for moving over, the program after the move prints what the one before it did."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "moving"
GUIDES = sorted(page for page in DOCS.glob("*.md") if page.stem != "index")
BLOCK = re.compile(
    r"(<!-- not run: the other library[^\n]*-->\n\n)?```python\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def programs(page):
    """Return what stands before the move, and what stands after it."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return (
        "\n".join(code for marked, code in blocks if bool(marked) is side) for side in (True, False)
    )


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_both_print_the_same(page, shown):
    if find_spec({"mosaicml-streaming": "streaming"}.get(page.stem, page.stem)) is None:
        pytest.skip(f"{page.stem} is not installed")
    before, after = programs(page)
    theirs, ours = shown(before, "theirs").splitlines(), shown(after, "plain").splitlines()
    assert len(ours) > 1
    # LitData tells on stdout what it does.
    assert [line for line in theirs if line in ours] == ours
    said = [line for line in theirs if line not in ours]
    assert page.stem == "litdata" or not said
