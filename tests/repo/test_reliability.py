"""The promises of the page on reliability, and the tests that prove them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "reliability.md"
NAMED = re.compile(r"`([\w/.-]+\.py)::(\w+)`")


def promises() -> list[str]:
    """Return the rows of the tables of promises."""
    text = PAGE.read_text("utf-8").partition("## Promises\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith("| Fault |")]


def decorators(path: str, name: str) -> str:
    """Return the lines above a test function, up to the blank line before it."""
    above, found, _ = (ROOT / path).read_text("utf-8").partition(f"\ndef {name}(")
    assert found, f"no such test: {path}::{name}"
    return above.rpartition("\n\n")[2]


@pytest.mark.parametrize("row", promises(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_promise_names_tests_that_run(row):
    fault, promise, tests = (cell.strip() for cell in row.strip("|").split("|"))
    assert fault
    assert promise
    named = NAMED.findall(tests)
    assert named
    for path, name in named:
        assert not re.search(r"mark\.(skip|xfail)\b", decorators(path, name)), name


def test_the_page_has_all_campaigns():
    named = {name for row in promises() for _, name in NAMED.findall(row)}
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE):
            assert name in named, f"no promise for {path.name}::{name}"


def test_a_test_that_does_not_exist_is_noticed():
    with pytest.raises(AssertionError, match="no such test"):
        decorators("tests/repo/test_reliability.py", "test_of_another_name")
