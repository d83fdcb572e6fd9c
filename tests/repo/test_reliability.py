"""Each promise of the page on reliability names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_promises_name_tests_that_exist():
    text = (ROOT / "docs" / "concepts" / "reliability.md").read_text("utf-8")
    table = text.partition("| Fault | Promise | Test |\n")[2].partition("\n\n")[0]
    rows = table.splitlines()[1:]
    assert len(rows) > 5
    for row in rows:
        tests = re.findall(r"`([\w/.-]+\.py)::(\w+)`", row)
        assert tests, f"no test: {row}"
        for path, name in tests:
            assert f"def {name}(" in (ROOT / path).read_text("utf-8"), (
                f"no such test: {path}::{name}"
            )
