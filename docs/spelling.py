"""Finds words that no dictionary has: python docs/spelling.py, in the root of a checkout.

What is right all the same stands in spelling.txt, in lower case and sorted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from llms import page_text
from markdown_it import MarkdownIt
from markdown_it.token import Token
from spellchecker import SpellChecker

DOCS = Path(__file__).parent
ROOT = DOCS.parent
KNOWN = DOCS / "spelling.txt"
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
NAMES = re.compile(r"\S*[\d_@/\\=.]\w\S*|[`$]\S*")


def pages() -> list[Path]:
    """Return all pages of prose."""
    own = [path for path in DOCS.glob("**/*.md") if "_build" not in path.parts]
    own += DOCS.glob("*/*.ipynb")
    return sorted([*own, ROOT / "README.md", *ROOT.glob("plugins/*/README.md")])


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield texts of a page with their lines: not code, links' targets, or HTML."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        line = token.map[0] + 1 if token.map else 0
        for part in token.children or ():
            if part.type == "softbreak":
                line += 1
            yield from ((line, each) for each in _texts(part))


def _texts(token: Token) -> Iterator[str]:
    if token.type == "text":
        yield NAMES.sub(" ", token.content)
    elif token.type == "image":
        yield from (text for part in token.children or () for text in _texts(part))


def words(text: str) -> Iterator[str]:
    """Yield words in lower case, but not single letters nor names such as JSON and MosaicML."""
    for word in WORD.findall(text):
        plain = re.sub(r"['’]s$", "", word)
        if len(plain) > 1 and (plain.islower() or plain.istitle()):
            yield plain.replace("’", "'").lower()


def main() -> int:
    """Print each unknown word with its place, and known ones that occur nowhere."""
    known = KNOWN.read_text(encoding="utf-8").split()
    checker = SpellChecker(distance=1)
    used: set[str] = set()
    faults = [f"{KNOWN.name}: not sorted"] if known != sorted(set(known)) else []
    for page in pages():
        for line, text in prose(page_text(page)):
            found = set(words(text))
            used |= found
            strange = sorted(checker.unknown(found) - set(known))
            faults += [f"{page.relative_to(ROOT)}:{line}: {word}" for word in strange]
    faults += [f"{KNOWN.name}: {word} is not needed" for word in known if word not in used]
    print("\n".join(faults) or "no unknown word")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
