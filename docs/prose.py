"""Counts words of prose: python docs/prose.py [page or directory …], in the root of a checkout.

Without arguments, prints one line per directory of docs, one for the README, and the sum. The reference
and the changelog are left out: they are looked up rather than read. With arguments, prints one line per
page.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from llms import page_text
from markdown_it import MarkdownIt
from spelling import DOCS, ROOT, pages

LOOKED_UP = {DOCS / "reference", DOCS / "changes", DOCS / "changelog.md"}
SHOWN = {"text", "code_inline", "softbreak", "hardbreak", "image"}


def count_words(text: str) -> int:
    """Return the words of a page that are not blocks of code, links' targets, or HTML."""
    count = 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        shown = (part.content or " " for part in token.children or () if part.type in SHOWN)
        count += len("".join(shown).split())
    return count


def main(arguments: list[str]) -> None:
    """Print the words per directory, or per page of the given paths."""
    places = {Path(argument).resolve() for argument in arguments}
    counts: Counter[str] = Counter()
    for page in pages():
        around = {page, *page.parents}
        if places & around:
            counts[str(page.relative_to(ROOT))] = count_words(page_text(page))
        elif not places and not LOOKED_UP & around and ROOT / "plugins" not in around:
            counts[str(page.parent.relative_to(ROOT))] += count_words(page_text(page))
    for name, words in sorted(counts.items()):
        print(f"{words:7,} {name}")
    print(f"{counts.total():7,} in all")


if __name__ == "__main__":
    main(sys.argv[1:])
